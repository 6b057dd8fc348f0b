"""cases/support_constant.py: what its recording backend sees, and which facts a bad check fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cases.support_constant import CASE, Recorded, facts
from harness.faults.refusal_without_reason import FAULT as SILENT
from harness.faults.support_in_graph import FAULT as IN_GRAPH
from harness.faults.support_stale import FAULT as STALE
from harness.observe.types import Fact
from harness.probing import Probing
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Evidence, Spec


def observed(provider: Any, recipe: str = "float8_current_scaling") -> list[Fact]:
    axes = Axes(CASE.name, Spec("reference"), Spec(recipe))
    cpu = torch.device("cpu")
    stated = Probing(provider, axes, Evidence.NATIVE, "cpu", cpu, torch.bfloat16, lambda m: contextlib.nullcontext())
    facts(stated)
    return stated.facts


def unmet(provider: Any, recipe: str = "float8_current_scaling") -> list[str]:
    stated = observed(provider, recipe)
    assert len(stated) > 10
    return [fact.name for fact in stated if fact.expected != fact.seen]


@pytest.mark.parametrize("recipe", ["float8_current_scaling", "delayed_scaling"])
def test_the_reference_meets_every_fact(recipe: str) -> None:
    assert unmet(ReferenceProvider(), recipe) == []


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (IN_GRAPH, {"graphs of one addition beside support checks"}),
        (STALE, {f"answers as {arch}, compiled" for arch in ("sm89", "sm90", "sm100", "sm103", "sm120")}),
        (SILENT, {"refusals as sm89 that give no reason"}),  # elsewhere each runs, or is emulated
    ],
    ids=["in graph", "stale", "silent"],
)
def test_bad_checks_fail_the_facts_that_are_about_them(fault: Any, expected: set[str]) -> None:
    with fault.apply(ReferenceProvider()) as broken:
        assert set(unmet(broken)) == expected


def test_answers_that_are_kept_for_the_process_are_not_asked_to_follow() -> None:
    with STALE.apply(ReferenceProvider()) as broken:
        broken.features = {"support_check": broken.features["support_check"]}
        stated = observed(broken)
    assert {fact.name for fact in stated if fact.expected != fact.seen} == set()
    assert "answers here, after all that" in {fact.name for fact in stated}


def test_recorded_graphs_name_what_they_call_and_still_run() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.relu(x) + 1

    recorded = Recorded()
    compiled: Callable[..., torch.Tensor] = torch.compile(program, backend=recorded, fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert recorded.graphs == [["relu", "add"]]


def test_a_provider_without_callable_checks_is_skipped() -> None:
    provider = ReferenceProvider()
    provider.features = {}
    axes = Axes(CASE.name, Spec("reference"), Spec("float8_current_scaling"))
    assert CASE.unavailable(provider, axes, "cpu") == "reference has no support_check"
