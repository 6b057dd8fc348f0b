"""harness.judge.numerics_tap: records of a good run, each broken in one way, and the words of the findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.judge.numerics_bench import Bench
from harness.judge.numerics_tap import check_codes, check_kernel, check_scales, check_tap
from harness.observe.types import Observations
from harness.providers.protocol import Operand, TapRecord
from harness.types import Finding
from tests.support.judge_stub import StubProvider, axes_for, observe

CHECKS: dict[str, Callable[[Bench], list[Finding]]] = {
    "scales": check_scales,
    "codes": check_codes,
    "kernel": check_kernel,
    "tap": check_tap,
}
RECIPES = ("float8_current_scaling", "nvfp4_block_scaling", "mxfp8_block_scaling", "float8_block_scaling")

_OBSERVED: dict[str, Observations] = {}


def good(recipe: str) -> Observations:
    if recipe not in _OBSERVED:
        _OBSERVED[recipe] = observe(axes_for(recipe, nesting="flat"))
    return _OBSERVED[recipe]


def broken(recipe: str, change: Callable[[TapRecord], TapRecord], index: int = 1) -> Bench:
    """The good run with record ``index`` (1: forward of layers.1) changed."""
    obs = good(recipe)
    assert obs.eager is not None
    records = list(obs.eager.records)
    records[index] = change(records[index])
    return Bench(replace(obs, eager=replace(obs.eager, records=tuple(records))), axes_for(recipe, nesting="flat"))


def fired(bench: Bench) -> set[str]:
    return {name for name, check in CHECKS.items() if check(bench)}


def on_a(**changes: Callable[[Operand], Any]) -> Callable[[TapRecord], TapRecord]:
    """A change of operand A: field -> function of the operand."""
    return lambda r: replace(r, a=replace(r.a, **{name: f(r.a) for name, f in changes.items()}))


@pytest.mark.parametrize("recipe", RECIPES)
def test_records_of_a_good_run_pass(recipe: str) -> None:
    assert fired(Bench(good(recipe), axes_for(recipe, nesting="flat"))) == set()


def flipped(operand: Operand) -> torch.Tensor:
    codes = operand.codes.clone()
    row, column = [int(i) for i in (codes & 7 == 2).nonzero()[0]]  # an ordinary code: its neighbour is one step away
    codes[row, column] += 1
    return codes


CHANGES: list[tuple[str, str, Callable[[TapRecord], TapRecord], set[str]]] = [
    ("scale x2", "float8_current_scaling", on_a(scale=lambda o: o.scale * 2), {"scales", "kernel"}),
    ("scale x8", "mxfp8_block_scaling", on_a(scale=lambda o: o.scale * 8), {"scales", "kernel"}),
    ("scale / 64", "nvfp4_block_scaling", on_a(scale=lambda o: o.scale / 64), {"scales", "kernel"}),
    ("one ulp of one scale", "float8_block_scaling", on_a(scale=lambda o: ulp(o.scale)), {"scales"}),
    ("scales shifted a block", "mxfp8_block_scaling", on_a(scale=lambda o: o.scale.roll(1, 1)), {"scales", "kernel"}),
    ("scales of rows given to columns", "float8_block_scaling", on_a(scale=lambda o: o.scale.t()), {"scales"}),
    ("global scale x2", "nvfp4_block_scaling", on_a(global_scale=lambda o: o.global_scale * 2), {"scales", "kernel"}),
    ("global scale lost", "nvfp4_block_scaling", on_a(global_scale=lambda o: None), {"scales", "kernel"}),
    ("global scale of nowhere", "mxfp8_block_scaling", on_a(global_scale=lambda o: torch.ones(1)), {"scales"}),
    ("one code one step off", "float8_current_scaling", on_a(codes=flipped), {"codes"}),
    ("all codes one step off", "float8_current_scaling", on_a(codes=lambda o: o.codes ^ 1), {"codes", "kernel"}),
    ("codes transposed in place", "float8_current_scaling", on_a(codes=lambda o: o.codes.flip(0)), {"codes", "kernel"}),
    ("codes of another shape", "float8_current_scaling", on_a(codes=lambda o: o.codes.t()), {"codes"}),
    ("codes packed", "nvfp4_block_scaling", on_a(codes=lambda o: o.codes[:, ::2]), {"codes"}),
    ("signed codes", "float8_current_scaling", on_a(codes=lambda o: o.codes.to(torch.int8)), {"codes"}),
    ("format e5m2", "float8_current_scaling", on_a(format=lambda o: "e5m2"), {"codes", "kernel"}),
    ("role", "float8_current_scaling", on_a(role=lambda o: "weight"), {"scales"}),
    ("block", "mxfp8_block_scaling", on_a(block=lambda o: (32, 1)), {"scales"}),
    ("output x2", "float8_current_scaling", lambda r: replace(r, output=r.output * 2), {"kernel", "tap"}),
    ("output NaN", "float8_current_scaling", lambda r: replace(r, output=r.output * float("nan")), {"kernel", "tap"}),
    ("output transposed", "float8_current_scaling", lambda r: replace(r, output=r.output.flip(1)), {"kernel", "tap"}),
    ("output cut", "float8_current_scaling", lambda r: replace(r, output=r.output[:4]), {"kernel"}),
    ("one output element", "mxfp8_block_scaling", lambda r: replace(r, output=one_off(r.output)), {"kernel", "tap"}),
    ("another layer's weight", "float8_current_scaling", lambda r: replace(r, weight_ptr=1), {"tap"}),
    ("another product", "float8_current_scaling", lambda r: replace(r, product="wgrad"), {"tap"}),
    ("another source", "float8_current_scaling", on_a(source=lambda o: o.source * 2), {"tap", "scales"}),
]


def ulp(scale: torch.Tensor) -> torch.Tensor:
    changed = scale.clone()
    changed[0, 0] = torch.nextafter(changed[0, 0], torch.tensor(1e9))
    return changed


def one_off(output: torch.Tensor) -> torch.Tensor:
    changed = output.clone()
    changed[9, 9] *= 1.02
    return changed


@pytest.mark.parametrize(("recipe", "change", "checks"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_every_mutation_of_a_record_is_seen(
    recipe: str, change: Callable[[TapRecord], TapRecord], checks: set[str]
) -> None:
    bench = broken(recipe, change)
    assert checks <= fired(bench)
    if "kernel" in checks and not any(finding.got.startswith("shape") for finding in check_kernel(bench)):
        assert bench.margins["numerics.kernel"].ratio >= 2


@pytest.mark.parametrize("index", range(6))
def test_every_record_and_both_operands_are_looked_at(index: int) -> None:
    double = on_a(scale=lambda o: o.scale * 2)
    assert {"scales", "kernel"} <= fired(broken("mxfp8_block_scaling", double, index))
    swap = broken("mxfp8_block_scaling", lambda r: replace(r, b=replace(r.b, codes=r.b.codes ^ 1)), index)
    assert {"codes", "kernel"} <= fired(swap)
    (finding, *_) = check_codes(swap)
    assert "operand B" in finding.where


def test_two_codes_of_nan_are_equal() -> None:
    obs = good("float8_current_scaling")
    bench = Bench(obs, axes_for("float8_current_scaling", nesting="flat"))
    pair = bench.views[0].pairs[0]
    pair.product.a.codes[0, 0] = 0x7F
    pair.record.a.codes[0, 0] = 0xFF
    try:
        assert check_codes(bench) == []
        pair.record.a.codes[0, 0] = 0x7E
        assert len(check_codes(bench)) == 1
    finally:
        _OBSERVED.clear()


def test_words_of_scale_and_code_findings() -> None:
    (scale,) = check_scales(broken("mxfp8_block_scaling", on_a(scale=lambda o: o.scale * 8)))
    assert scale.where == "eager, layers.1 fprop, operand A (input)"
    assert "in block [0, 0]" in scale.expected
    assert "8 times as large (512 of 512 blocks)" in scale.got
    (code,) = check_codes(broken("mxfp8_block_scaling", on_a(codes=flipped)))
    assert code.expected.startswith("code 0x")
    assert "block [" in code.expected
    assert "1 of 16384 codes differ" in code.got


def test_the_tap_must_report_the_weight_parameter_and_the_batch() -> None:
    def other_weight(r: TapRecord) -> TapRecord:
        source = r.b.source.clone()
        source[0, 0] = torch.nextafter(source[0, 0], torch.tensor(9.0).bfloat16())
        return replace(r, b=replace(r.b, source=source))

    (finding,) = check_tap(broken("float8_current_scaling", other_weight))
    assert finding.expected == "the bits of the weight parameter"
    assert finding.where == "eager, layers.1 fprop, source of weight"

    def other_gradient(r: TapRecord) -> TapRecord:
        source = r.a.source.clone()
        source[0, 0] = torch.nextafter(source[0, 0], torch.tensor(9.0).bfloat16())
        return replace(r, a=replace(r.a, source=source))

    findings = check_tap(broken("float8_current_scaling", other_gradient, index=2))  # dgrad of the last layer
    assert findings[0].expected == "the bits of the batch's output gradient"


def test_missing_and_superfluous_records_are_named() -> None:
    obs = good("mxfp8_block_scaling")
    assert obs.eager is not None
    cell = axes_for("mxfp8_block_scaling", nesting="flat")

    def with_records(records: tuple[TapRecord, ...]) -> Bench:
        assert obs.eager is not None
        owners = (0,) * len(records)
        run = replace(obs.eager, records=records, steps_of_records=owners)
        return Bench(replace(obs, eager=run), cell)

    (missing,) = check_tap(with_records(obs.eager.records[:-1]))
    assert (missing.expected, missing.got) == ("one record", "none")
    (extra,) = check_tap(with_records((*obs.eager.records, obs.eager.records[0])))
    assert extra.expected == "no more products"
    assert "fprop under mxfp8_block_scaling" in extra.got
    nothing = check_tap(with_records(()))
    assert len(nothing) == 6


def test_recomputed_products_are_not_counted() -> None:
    obs = good("mxfp8_block_scaling")
    assert obs.eager is not None
    again = replace(obs.eager.records[0], phase="recompute")
    run = replace(obs.eager, records=(*obs.eager.records, again), steps_of_records=(0,) * 7)
    bench = Bench(replace(obs, eager=run), axes_for("mxfp8_block_scaling", nesting="flat"))
    assert check_tap(bench) == []


def test_a_fused_bias_is_allowed_its_saved_rounding() -> None:
    """Libraries that add the bias before the output is rounded report the product without it."""

    class Fused(StubProvider):
        def add_bias(self, layer: int, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            record = self.records[-1]
            exact = self.decode(record.a).double() @ self.decode(record.b).double().t()
            return y + bias + ((exact + bias.double()).to(y.dtype) - (y + bias)).detach()

    cell = axes_for("mxfp8_block_scaling", nesting="flat")
    assert check_tap(Bench(observe(cell, Fused()), cell)) == []
