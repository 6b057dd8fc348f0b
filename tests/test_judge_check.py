"""Limits: what the case's design and the matrix's budget allow, and no more than a baseline measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from harness.judge.check import Judging
from harness.judge.verdict import run_checks
from harness.observe.types import Break
from harness.types import Budgets, Expectation, Finding
from tests.support.judging import judging

SITES = tuple(Break("Unsupported: print", f"user.py:{line}") for line in range(10, 13))
# A clean cell's counts, each raised by two.
RAISED: dict[str, tuple[str, dict[str, Any]]] = {
    "graph_breaks": ("compile.breaks", {"breaks": SITES[:2]}),
    "recompiles": ("compile.recompiles", {"recompiles": ("a", "b")}),
    "eager_frames": ("compile.eager_frames", {"frames_total": 3, "frames_ok": 1}),
}
ROOMY = Budgets(graph_breaks=5, recompiles=5, eager_frames=5)
ORIGIN = {f"limits.{name}": "baseline b.json" for name in ("graphs", *RAISED)}


def judged(budgets: Budgets, baseline: Budgets | None, census: dict[str, Any], **expects: int) -> list[Finding]:
    j = judging(Expectation(budgets=budgets, baseline=baseline), census=census)
    obs = dataclasses.replace(j.obs, expects=dataclasses.replace(j.expects, **expects))
    return run_checks(Judging(dataclasses.replace(j.cell, origin=ORIGIN), obs))[0]


@pytest.mark.parametrize("event", RAISED)
def test_more_than_the_baseline_measured_is_red_within_the_budget(event: str) -> None:
    check, census = RAISED[event]
    assert judged(ROOMY, None, census) == []
    assert judged(ROOMY, Budgets(None, None, None), census) == []
    assert judged(ROOMY, dataclasses.replace(Budgets(), **{event: 2}), census) == []
    (finding,) = judged(ROOMY, dataclasses.replace(Budgets(), **{event: 1}), census)
    assert (finding.check, finding.expected) == (check, "at most 1 (baseline b.json)")


@pytest.mark.parametrize("event", RAISED)
def test_a_budget_of_null_does_not_lift_the_limit(event: str) -> None:
    check, census = RAISED[event]
    unjudged = Budgets(**{**dict.fromkeys(RAISED), event: None})
    assert judged(unjudged, None, census) == []
    (finding,) = judged(unjudged, Budgets(), census)
    assert (finding.check, finding.expected) == (check, "at most 0 (baseline b.json)")


@pytest.mark.parametrize("event", RAISED)
def test_a_baseline_never_allows_more(event: str) -> None:
    check, census = RAISED[event]
    (finding,) = judged(Budgets(), dataclasses.replace(Budgets(), **{event: 9}), census)
    assert (finding.check, finding.expected) == (check, "at most 0")


@pytest.mark.parametrize("event", RAISED)
def test_the_design_of_a_case_does_not_lift_the_limit(event: str) -> None:
    """A case that states two of them is green with two; the baseline remembers that there was one."""
    check, census = RAISED[event]
    assert judged(Budgets(), None, census, **{event: 2}) == []
    (finding,) = judged(Budgets(), dataclasses.replace(Budgets(), **{event: 1}), census, **{event: 2})
    assert (finding.check, finding.expected) == (check, "at most 1 (baseline b.json)")


def test_more_graphs_than_measured_are_red_although_the_case_states_them() -> None:
    census = {"graphs": 2, "backward_graphs": 2}
    assert judged(Budgets(), Budgets(graphs=2), census, graphs=2) == []
    (finding,) = judged(Budgets(), Budgets(graphs=1), census, graphs=2)
    assert str(finding) == "compile.graphs: expected at most 1 (baseline b.json), got 2"


def test_fewer_graphs_than_the_case_states_are_red_whatever_was_measured() -> None:
    (finding,) = judged(Budgets(), Budgets(graphs=2), {"graphs": 1}, graphs=2, backward_graphs=1)
    assert str(finding) == "compile.graphs: expected 2 forward graph(s), got 1"


def test_a_clean_cell_is_clean_under_its_own_measurement() -> None:
    assert judged(Budgets(), Budgets(graphs=1), {}) == []
