"""A product whose kernel was asked for fast accumulation has a wider bound: it alone, no wider than that, and said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.judge.bounds import HOPPER, never_promoted
from harness.judge.numerics import judge_numerics
from harness.judge.numerics_bench import Bench
from harness.judge.numerics_tap import check_kernel
from harness.observe.types import Observations
from harness.providers.protocol import TapRecord
from harness.types import Axes, Finding
from tests.support.judge_stub import axes_for, decode_e8, observe

DEPTH = 512
AXES = axes_for(arch="sm90", nesting="flat", shape=(32, DEPTH, 32), data="positive", dtype="float32")


def observed(change: Callable[[TapRecord], TapRecord], axes: Axes = AXES) -> Observations:
    """A good run on Hopper whose records of forward products were changed."""
    obs = replace(observe(axes), arch=axes.arch)
    assert obs.eager is not None
    records = tuple(change(r) if r.product == "fprop" else r for r in obs.eager.records)
    return replace(obs, eager=replace(obs.eager, records=records))


def off(share: float, fast: bool) -> Callable[[TapRecord], TapRecord]:
    """Adds ``share`` of sum |a||b| to each element of a product's result."""

    def change(record: TapRecord) -> TapRecord:
        a, b = (decode_e8(o.codes, o.format).abs().double() * float(o.scale) for o in (record.a, record.b))
        output = record.output + (share * (a @ b.t())).to(record.output)
        return replace(record, output=output, fast_accumulation=fast)

    return change


def kernel_findings(change: Callable[[TapRecord], TapRecord], axes: Axes = AXES) -> list[Finding]:
    return check_kernel(Bench(observed(change, axes), axes))


def test_an_error_between_the_two_bounds_passes_only_where_the_kernel_was_asked_for_it() -> None:
    between = 2 * HOPPER.factor(DEPTH)
    assert between < never_promoted(HOPPER, DEPTH).factor(DEPTH)
    deep = [f for f in kernel_findings(off(between, fast=True)) if "layers.0" in f.where]
    assert deep == []
    assert any("layers.0" in f.where for f in kernel_findings(off(between, fast=False)))


@pytest.mark.parametrize("factor", [1.1, 2.0, 100.0])
def test_no_error_beyond_the_wider_bound_can_hide_behind_it(factor: float) -> None:
    share = factor * never_promoted(HOPPER, DEPTH).factor(DEPTH)
    (finding, *_) = kernel_findings(off(share, fast=True))
    assert finding.check == "numerics.kernel"
    assert f"never promoted in K = {DEPTH}" in finding.expected


def test_the_bound_is_that_of_the_product_and_not_of_the_deepest_one() -> None:
    """layers.1 has K = 32: asked for it or not, it is promoted once, at the end."""
    share = 2 * HOPPER.factor(DEPTH)
    assert any("layers.1" in f.where for f in kernel_findings(off(share, fast=True)))


def test_it_excuses_nothing_on_an_architecture_without_it() -> None:
    cpu = replace(AXES, arch="cpu")
    assert kernel_findings(off(2.0**-12, fast=True), cpu) != []
    assert kernel_findings(off(0.0, fast=True), cpu) == []


def test_wrong_scales_and_high_precision_are_seen_all_the_same() -> None:
    def doubled(record: TapRecord) -> TapRecord:
        return replace(record, a=replace(record.a, scale=record.a.scale * 2), fast_accumulation=True)

    assert {f.check for f in judge_numerics(observed(doubled), AXES).findings} >= {"numerics.scales", "numerics.kernel"}


def test_a_note_names_the_products() -> None:
    fast, usual = (judge_numerics(observed(off(0.0, fast=flag)), AXES) for flag in (True, False))
    assert (fast.findings, usual.findings) == ((), ())
    (note,) = (note for note in fast.notes if note.startswith("fast accumulation"))
    assert "layers.0 fprop, layers.1 fprop" in note
    assert f"K = {DEPTH}" in note
    assert not any("fast accumulation" in note for note in usual.notes)


def test_records_say_nothing_of_it_by_default() -> None:
    run = observe(AXES).eager
    assert run is not None
    assert run.records
    assert not any(record.fast_accumulation for record in run.records)
