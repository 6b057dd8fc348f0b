"""cases.inner_exits: which keywords of a region it knows, and that a forgotten one is seen while regions are open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from cases.inner_exits import KEYWORDS, inner_exits, keywords_of
from harness.faults import FAULTS
from harness.faults.fault import Fault
from harness.observe.state import diff, provider_state
from harness.probing import Probing
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.registry import load
from harness.types import Axes, Evidence, Spec

AXES = Axes("disabled", Spec("reference"), Spec("float8_current_scaling"), variant="inside")


def probed(provider: Any, recipe: str = "float8_current_scaling") -> tuple[Probing, set[str]]:
    """What the probe stated, and the state keys that differed after some part."""
    differed: set[str] = set()

    @contextmanager
    def part(moment: str) -> Iterator[None]:
        before = provider_state(provider)
        yield
        differed.update(found.key for found in diff(before, provider_state(provider), moment))

    axes = replace(AXES, recipe=Spec(recipe))
    device, dtype = torch.device("cpu"), torch.bfloat16
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", device, dtype, part)
    inner_exits(CaseContext(provider, axes, Spec("float8_block_scaling"), device, dtype))(probing)
    return probing, differed


def wrong(probing: Probing) -> list[Any]:
    return [fact for fact in probing.facts if fact.expected != fact.seen]


@pytest.mark.parametrize(("recipe", "entered"), [("float8_current_scaling", 3), ("delayed_scaling", 2)])
def test_exits_of_the_reference_put_back_everything(recipe: str, entered: int) -> None:
    probing, differed = probed(ReferenceProvider(), recipe)
    assert (wrong(probing), differed) == ([], set())
    assert len(probing.facts) == entered


FORGOTTEN = {
    "inner_exit_keeps_calibration": {"state.fp8_calibration"},
    "inner_exit_half": {"state.fp8_calibration", "state.fp8_distributed_group", "state.fp8_graph_capturing"},
    "inner_exit_wrong_level": {"state.fp8_calibration", "state.fp8_distributed_group", "state.fp8_graph_capturing"},
}


@pytest.mark.parametrize("name", FORGOTTEN)
def test_what_an_exit_forgets_is_named(name: str) -> None:
    fault: Fault = load(FAULTS[name])
    with fault.apply(ReferenceProvider()) as provider:
        probing, differed = probed(provider)
    assert (wrong(probing), differed) == ([], FORGOTTEN[name])


def test_the_reference_takes_every_keyword() -> None:
    assert keywords_of(ReferenceProvider.autocast) == KEYWORDS


def test_a_keyword_that_a_region_does_not_take_is_left_out() -> None:
    def region(enabled: bool = True, recipe: Any = None, calibrating: bool = False) -> None: ...

    assert keywords_of(region) == {"calibrating": (True, False)}


def test_regions_that_are_alike_prove_nothing() -> None:
    provider = ReferenceProvider()
    take: Callable[..., Any] = provider.autocast

    def deaf(*, enabled: bool, recipe: Any, calibrating: bool, amax_reduction_group: Any, _graph: bool) -> Any:
        return take(enabled=enabled, recipe=recipe)

    provider.autocast = deaf  # type: ignore[method-assign, assignment]
    probing, differed = probed(provider)
    assert differed == set()
    assert len(wrong(probing)) == len(probing.facts) == 3
    assert "fp8_enabled" in wrong(probing)[0].seen
