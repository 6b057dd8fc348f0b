"""cases.disabled: what counts as building a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from cases.disabled import (
    AROUND,
    CYCLE,
    DEEP,
    PROGRAMS,
    _around_expects,
    constructions,
    every_level_is_put_back,
)
from harness import fp8
from harness.faults import depth_capped
from harness.fp8.recipe import make_recipe
from harness.observe.state import diff, provider_state
from harness.probing import Probing
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Evidence, Spec


def test_constructions_are_counted_by_whatever_path_and_only_inside() -> None:
    before = vars(fp8.DelayedScaling)["__init__"]
    with constructions([fp8.Float8CurrentScaling()]) as built:
        fp8.DelayedScaling(margin=1)
        make_recipe("mxfp8_block_scaling", {})
    fp8.DelayedScaling()
    assert built == ["DelayedScaling", "MXFP8BlockScaling"]
    assert vars(fp8.DelayedScaling)["__init__"] is before


def test_constructors_come_back_after_an_exception_and_still_check() -> None:
    before = vars(fp8.DelayedScaling)["__init__"]
    with pytest.raises(ValueError, match="amax_history_len"), constructions([fp8.DelayedScaling()]):
        fp8.DelayedScaling(amax_history_len=0)
    assert vars(fp8.DelayedScaling)["__init__"] is before


def test_a_class_that_only_inherits_its_constructor_is_counted_once() -> None:
    class Own(fp8.DelayedScaling):
        pass

    with constructions([Own()]) as built:
        Own()
    assert built == ["Own"]


def test_regions_around_end_on_their_innermost_one() -> None:
    expects = _around_expects({"outer": "A", "inner": "B"})
    ran = [step.fprop for step in expects.schedule]
    assert ran == [("A", "A"), (), (), ("B", "B"), (), ("A", "A")]
    assert (len(AROUND), expects.graphs, expects.recompiles) == (6, 3, 2)
    assert _around_expects({"outer": "A", "inner": "A"}).graphs == 2


def test_where_regions_beyond_a_limit_are_not_entered_some_layer_runs_in_another_setting() -> None:
    settings = [CYCLE[level % 3] for level in range(DEEP)]
    with_layer = [*range(3), *range(DEEP - 3, DEEP)]
    assert [settings[level] for level in reversed(with_layer)] == list(PROGRAMS["twelve"][1])
    for limit in range(1, DEEP):
        assert any(settings[level] != settings[min(level, limit - 1)] for level in with_layer), limit


def moments(provider: ReferenceProvider) -> dict[str, set[str]]:
    """Moments of the twelve regions at which state had changed, each with the keys."""
    found: dict[str, set[str]] = {}

    @contextmanager
    def part(moment: str) -> Iterator[None]:
        before = provider_state(provider)
        yield
        changed = {item.key for item in diff(before, provider_state(provider), moment)}
        found.update({moment: changed} if changed else {})

    spec, device, dtype = Spec("float8_current_scaling"), torch.device("cpu"), torch.bfloat16
    axes = Axes("disabled", Spec("reference"), spec, variant="twelve")
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", device, dtype, part)
    every_level_is_put_back(probing, CaseContext(provider, axes, Spec("float8_block_scaling"), device, dtype))
    return found


@pytest.mark.parametrize("length", [1, 8, DEEP - 1, DEEP])
def test_a_level_that_a_stack_forgot_is_named(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth_capped, "LENGTH", length)
    with depth_capped.FAULT.apply(ReferenceProvider()) as provider:
        assert set(moments(provider)) == {f"in region {level + 1} of {DEEP}" for level in range(DEEP - 1 - length)}


def test_the_reference_puts_every_level_back() -> None:
    assert moments(ReferenceProvider()) == {}
