"""A finished run against its baseline: what is worse is red, what is better is told, and nothing is laundered."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from harness.baseline import BaselineCell, Environment
from harness.report.baseline import (
    GONE,
    BaselineReport,
    baseline_title,
    judge_baseline,
    measure,
    named,
    told,
    update,
)
from harness.types import CellResult, Evidence, Verdict
from tests.support.baselines import CENSUS, GEMMS, HERE, entry, ran, use

NEWER = Environment("cpu", "", {"torch": "2.14.1", "cuda": "none"})


def judged(was: BaselineCell, now: CellResult) -> BaselineReport:
    return judge_baseline(use(was), [now], complete=True)


def test_a_measurement_holds_everything_that_is_compared() -> None:
    assert measure(ran()) == entry()


def test_breaks_are_sites_or_the_counter_whichever_is_more() -> None:
    assert measure(ran(census={"breaks": [{"reason": "x"}], "counter_breaks": 3})).graph_breaks == 3
    assert measure(ran(census={"breaks": [{}, {}], "counter_breaks": 1})).graph_breaks == 2


def test_what_was_not_observed_is_not_measured() -> None:
    refused = measure(ran(census={}, checks=("error.refusal",)))
    assert (refused.graphs, refused.graph_breaks, refused.fp8_gemms, refused.fp8_judged) == (None, None, None, False)
    # Dynamo saw three refused calls; that is no measure of a program that compiles.
    assert measure(ran(census={"recompiles": ["a", "b"]}, checks=("error.refusal",))).recompiles is None
    # A profile in which no FP8 GEMM ran is a measurement.
    assert measure(ran(gemms=[{"kernel": "mm", "kind": "high_precision", "count": 6}])).fp8_gemms == 0


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict.is_red])
def test_a_red_cell_can_not_be_measured(verdict: Verdict) -> None:
    with pytest.raises(ValueError, match="not what a baseline holds"):
        measure(ran(verdict=verdict))


def test_a_run_like_its_baseline_has_nothing_to_tell() -> None:
    report = judged(measure(ran()), ran())
    assert report == BaselineReport("b.json", str(HERE), compared=1)


MORE_GEMMS = [*GEMMS, {"kernel": "x", "kind": "fp8_native", "count": 1}]
SKIPPED = ran(verdict=Verdict.SKIP, evidence=Evidence.NONE, reason="TE is not installed", census={}, checks=())

WORSE: list[tuple[str, dict[str, Any], CellResult, str, str]] = [
    ("graphs", {}, ran(census={"graphs": 2}), "at most 1", "2"),
    ("graph_breaks", {}, ran(census={"counter_breaks": 1}), "at most 0", "1"),
    ("recompiles", {"recompiles": 1}, ran(census={"recompiles": ["a", "b"]}), "at most 1", "2"),
    ("eager_frames", {}, ran(census={"eager_frames": 1}), "at most 0", "1"),
    ("unimplemented", {}, ran(census={"unimplemented": ["x"]}), "at most 0", "1"),
    ("steady_compiles", {}, ran(census={"steady_compiles": 1}), "at most 0", "1"),
    ("fp8_gemms", {"fp8_gemms": 7}, ran(), "at least 7", "6"),
    ("fp8_gemms", {}, ran(checks=("compile.graphs", "numerics.codes")), "at least 6", "nothing measured"),
    ("fp8_judged", {}, ran(checks=("compile.graphs", "fp8.gemms")), "FP8 arithmetic judged", "not judged"),
    ("evidence", {}, ran(evidence=Evidence.EMULATED), "native", "emulated"),
    ("evidence", {}, ran(evidence=Evidence.TRACED), "native", "traced"),
    ("evidence", {}, ran(evidence=Evidence.NEGATIVE), "native", "negative"),
    ("evidence", {"evidence": "emulated"}, ran(evidence=Evidence.TRACED), "emulated", "traced"),
    ("evidence", {"evidence": "negative"}, SKIPPED, "negative", "skip (TE is not installed)"),
    ("evidence", {}, SKIPPED, "native", "skip (TE is not installed)"),
    ("arch", {"arch": "sm90"}, ran(), "a run on sm90", "cpu"),
    ("recompiles", {"verdict": "xfail"}, ran(verdict=Verdict.XFAIL, census={"recompiles": ["a"]}), "at most 0", "1"),
]


@pytest.mark.parametrize(
    ("check", "was", "now", "expected", "got"), WORSE, ids=[f"{i}-{w[0]}" for i, w in enumerate(WORSE)]
)
def test_worse_is_red(check: str, was: dict[str, Any], now: CellResult, expected: str, got: str) -> None:
    (finding,) = judged(entry(**was), now).findings
    assert (finding.check, finding.expected, finding.got) == (f"baseline.{check}", expected, got)
    assert str(finding) == f"baseline.{check}: expected {expected} (b.json:6), got {got}: {entry().id}"


BETTER: list[tuple[dict[str, Any], CellResult, str]] = [
    ({"graph_breaks": 2}, ran(), "baseline.graph_breaks: expected at most 2 (b.json:6), got 0"),
    ({"recompiles": 2}, ran(), "baseline.recompiles: expected at most 2 (b.json:6), got 0"),
    ({"graphs": 3}, ran(), "baseline.graphs: expected at most 3 (b.json:6), got 1"),
    ({}, ran(gemms=MORE_GEMMS), "baseline.fp8_gemms: expected at least 6 (b.json:6), got 7"),
    ({"fp8_judged": False}, ran(), "baseline.fp8_judged: expected FP8 arithmetic not judged (b.json:6), got judged"),
    ({"evidence": "emulated"}, ran(), "baseline.evidence: expected emulated (b.json:6), got native"),
    ({"evidence": "none", "verdict": "skip"}, ran(), "baseline.evidence: expected none (b.json:6), got native"),
    ({"verdict": "xfail"}, ran(), "baseline.verdict: expected xfail (b.json:6), got pass"),
]


@pytest.mark.parametrize(("was", "now", "text"), BETTER, ids=[text.split(":")[0] for _, _, text in BETTER])
def test_better_is_told_and_not_red(was: dict[str, Any], now: CellResult, text: str) -> None:
    report = judged(entry(**was), now)
    assert report.findings == ()
    assert [str(one) for one in report.better] == [f"{text}: {entry().id}"]
    lines = told(report, "m.yaml")
    assert lines[-1] == ("to keep what is better: python runner.py --matrix m.yaml --update-baseline --baseline b.json")


def test_better_evidence_does_not_hide_what_is_worse() -> None:
    report = judged(entry(evidence="emulated"), ran(census={"graphs": 2}))
    assert [finding.check for finding in report.findings] == ["baseline.graphs"]
    assert [finding.check for finding in report.better] == ["baseline.evidence"]


def test_what_was_never_measured_is_neither() -> None:
    report = judged(entry(graphs=None, fp8_gemms=None), ran(census={"graphs": 4}))
    assert (report.findings, report.better) == ((), ())


def test_a_documented_refusal_in_place_of_a_run_is_red() -> None:
    """The matrix was given an ``expect: raises``: the cell passes, and nothing is measured any more."""
    report = judged(entry(), ran(checks=("error.refusal",), reason="refused under compile as documented"))
    assert {finding.check for finding in report.findings} >= {"baseline.graphs", "baseline.fp8_gemms"}


def test_cells_that_say_the_same_are_one_finding() -> None:
    report = judge_baseline(
        use(*map(entry, range(5))), [ran(seed, evidence=Evidence.EMULATED) for seed in range(5)], complete=True
    )
    (finding,) = report.findings
    assert len(finding.ids) == 5
    assert str(finding).endswith("toy_linear[seed=0], toy_linear[seed=1], toy_linear[seed=2] and 2 more")


def test_a_waiver_outranks_a_baseline_but_hides_nothing() -> None:
    report = judged(entry(), ran(verdict=Verdict.XFAIL, census={"graphs": 0, "eager_frames": 3}))
    assert report.findings == ()
    assert report.notes == (f"1 cell passed in the baseline, and an expected failure by a waiver now: {entry().id}",)


def test_graphs_of_a_cell_that_fails_as_expected_may_go_up() -> None:
    report = judged(entry(verdict="xfail", graphs=0), ran(verdict=Verdict.XFAIL, census={"graphs": 3}))
    assert (report.findings, report.better) == ((), ())


@pytest.mark.parametrize("gates", [True, False])
def test_a_red_cell_is_red_by_itself_and_named(gates: bool) -> None:
    report = judged(entry(), ran(verdict=Verdict.FAIL, gates=gates, census={"graphs": 9}))
    assert report.findings == ()
    assert report.notes == (f"1 cell red, and passed in the baseline: {entry().id}",)


def test_a_cell_that_was_not_run_is_not_compared() -> None:
    report = judge_baseline(use(entry(0), entry(1)), [ran(0), dataclasses.replace(SKIPPED, attempts=())], complete=True)
    assert (report.compared, report.findings) == (1, ())


def test_a_cell_that_the_baseline_does_not_know_is_a_note() -> None:
    report = judge_baseline(use(entry(0)), [ran(0), ran(1)], complete=True)
    assert report.findings == ()
    assert report.notes == ("1 cell not in the baseline: toy_linear[seed=1]",)


def test_a_cell_that_the_plan_no_longer_has_is_red_even_of_a_selection() -> None:
    for complete in (True, False):
        report = judge_baseline(use(entry(0), entry(1), gone=(entry(1).id,)), [ran(0)], complete=complete)
        (finding,) = report.findings
        assert str(finding) == f"baseline.gone: expected a cell of the plan (b.json:7), got {GONE}: {entry(1).id}"


def test_unless_something_else_explains_it() -> None:
    report = judge_baseline(use(entry(0), entry(1), gone=(entry(1).id,), why="--set"), [ran(0)], complete=True)
    assert report.findings == ()
    assert report.notes == (f"1 cell in the baseline and not in the plan (--set): {entry(1).id}",)


def test_a_run_of_which_nothing_was_compared_has_not_held() -> None:
    report = judge_baseline(use(entry(7), gone=(entry(7).id,), why="--set"), [ran(0)], complete=True)
    assert [finding.check for finding in report.findings] == ["baseline.compared"]
    assert judge_baseline(use(entry(7)), [ran(0)], complete=False).findings == ()


def test_another_environment_is_said_and_not_red() -> None:
    report = judge_baseline(use(entry(), here=NEWER), [ran()], complete=True)
    assert (report.findings, report.changed) == ((), ("torch 2.13.0+cpu -> 2.14.1",))
    assert told(report, "m.yaml") == ["measured on cpu, torch 2.13.0+cpu, cuda none", "now torch 2.13.0+cpu -> 2.14.1"]


def test_entries_of_an_earlier_environment_are_told() -> None:
    report = judged(entry(environment=NEWER), ran())
    assert report.notes == (f"1 cell in the baseline from an earlier environment than the file's: {entry().id}",)


def test_the_title() -> None:
    assert baseline_title(judged(entry(), ran()), 1) == "baseline b.json: held, 1 of 1 cells compared"
    worse = judged(entry(fp8_gemms=9), ran())
    assert baseline_title(worse, 3) == "baseline b.json: NOT held, 1 of 3 cells compared"
    assert named(["a", "b", "c", "d"]) == "a, b, c and 1 more"


# Updates


def updated(*results: CellResult, known: Any = None, complete: bool = True, here: Environment = HERE) -> Any:
    report = judge_baseline(known, results, complete=complete) if known else None
    return update("m", here, known, report, results, complete=complete)


def test_the_first_update_writes_what_is_as_expected() -> None:
    done = updated(ran(1), ran(0), ran(2, Verdict.FAIL), ran(3, Verdict.XFAIL))
    assert done.baseline.cells == (entry(0), entry(1), entry(3, verdict="xfail"))
    assert (done.added, done.left_out) == ((entry(1).id, entry(0).id, entry(3).id), (entry(2).id,))
    assert (done.baseline.matrix, done.baseline.environment, done.written) == ("m", HERE, 3)


def test_a_run_held_against_what_it_wrote_itself_has_nothing_to_tell() -> None:
    results = [ran(0), ran(1, Verdict.XFAIL), dataclasses.replace(SKIPPED, id=entry(2).id)]
    done = updated(*results)
    report = judge_baseline(use(*done.baseline.cells), results, complete=True)
    assert (report.findings, report.better, report.notes, report.compared) == ((), (), (), 3)
    again = updated(*results, known=use(*done.baseline.cells))
    assert (again.baseline, len(again.same)) == (done.baseline, 3)


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict.is_red])
@pytest.mark.parametrize("gates", [True, False])
def test_an_update_never_turns_a_red_cell_green(verdict: Verdict, gates: bool) -> None:
    red = ran(0, verdict, gates=gates, census={"graphs": 5, "recompiles": ["a"]})
    done = updated(red, ran(1), known=use(entry(0), entry(1)))
    assert done.baseline.cells == (entry(0), entry(1))
    assert (done.kept_red, done.same) == ((entry(0).id,), (entry(1).id,))


@pytest.mark.parametrize(
    ("check", "was", "now", "expected", "got"), WORSE, ids=[f"{i}-{w[0]}" for i, w in enumerate(WORSE)]
)
def test_nor_does_it_forget_what_was_better(
    check: str, was: dict[str, Any], now: CellResult, expected: str, got: str
) -> None:
    done = updated(now, known=use(entry(**was)))
    assert done.baseline.cells == (entry(**was),)
    assert (done.kept_worse, done.written) == ((entry().id,), 0)


def test_what_is_better_replaces_its_entry() -> None:
    done = updated(ran(0), known=use(entry(0, graph_breaks=3)))
    assert (done.baseline.cells, done.changed) == ((entry(0),), (entry(0).id,))


def test_a_waived_cell_replaces_its_entry() -> None:
    done = updated(ran(0, Verdict.XFAIL), known=use(entry(0)))
    assert done.baseline.cells == (entry(0, verdict="xfail"),)


def test_a_part_of_the_plan_changes_its_own_entries_only() -> None:
    known = use(entry(0, recompiles=2), entry(1, recompiles=2), entry(9), gone=(entry(9).id,), why="")
    done = updated(ran(0), known=known, complete=False)
    assert done.baseline.cells == (entry(0), entry(1, recompiles=2), entry(9))
    assert (done.kept_unselected, done.removed) == ((entry(1).id, entry(9).id), ())


def test_the_whole_plan_takes_out_what_it_no_longer_has() -> None:
    done = updated(ran(0), known=use(entry(0), entry(9), gone=(entry(9).id,), why="the update takes them out"))
    assert (done.baseline.cells, done.removed, done.kept_unselected) == ((entry(0),), (entry(9).id,), ())


def test_what_is_kept_says_where_it_was_measured() -> None:
    first = updated(ran(0), ran(1, Verdict.FAIL), known=use(entry(0), entry(1), here=NEWER), here=NEWER)
    assert first.baseline.environment == NEWER
    assert first.baseline.cells == (entry(0), entry(1, environment=HERE))
    # Back on the first environment, the entry is at home again.
    known = dataclasses.replace(use(), baseline=first.baseline)
    second = updated(ran(0), ran(1, Verdict.FAIL), known=known)
    assert second.baseline.cells == (entry(0), entry(1))


def test_the_fakes_are_what_these_tests_take_them_for() -> None:
    assert set(CENSUS) == {
        "graphs",
        "breaks",
        "counter_breaks",
        "unimplemented",
        "recompiles",
        "eager_frames",
        "steady_compiles",
    }
    assert SKIPPED.reason
    assert SKIPPED.attempts
