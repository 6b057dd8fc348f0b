"""Every row of the table in harness/run/reconcile.py, and what must hold whatever a journal says."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.faults.stages import APPLIED, JUDGED, MENDED
from harness.run.journal import BrokenLine, Journal, Process
from harness.run.plan_file import RunPlan
from harness.run.postmortem import Death
from harness.run.reconcile import Ending, Reconciled, reconcile, repro_command
from harness.types import Expectation, Spec, Verdict, Waiver
from tests.support.baselines import entry, use
from tests.support.cells import Book, cell, plan, result

TODAY = datetime.date(2026, 1, 31)
CRASH = Death(Verdict.CRASH, "run.crash", "Segmentation fault", "the stack", "mine.py:3")


def settled(of: RunPlan, book: Book, **ending: Any) -> Reconciled:
    return reconcile(of, book.journal, Ending(**ending), today=TODAY)


def verdicts(state: Reconciled) -> list[str]:
    return [r.verdict.value for r in state.results]


def test_one_start_and_one_end_is_the_result_with_its_attempt() -> None:
    state = settled(plan(1), Book().ran(cell(0)))
    assert verdicts(state) == ["pass"]
    assert [(a.verdict, a.worker, a.seconds) for a in state.results[0].attempts] == [(Verdict.PASS, "gw0", 1.0)]
    assert (state.faults, state.unstarted, state.to_retry, state.reds) == ((), (), (), 0)


def test_results_stand_in_the_plans_order() -> None:
    state = settled(plan(3), Book().ran(cell(2)).ran(cell(0)).ran(cell(1)))
    assert [r.id for r in state.results] == [c.id for c in plan(3).cells]


def test_start_without_end_is_what_the_post_mortem_says() -> None:
    state = settled(plan(1), Book().start(cell(0)), deaths={Process(1, "gw0", 10): CRASH})
    found = state.results[0]
    assert (found.verdict, found.reason, found.detail) == (Verdict.CRASH, "Segmentation fault", "the stack")
    assert (found.findings[0].check, found.findings[0].site) == ("run.crash", "mine.py:3")
    assert "Segmentation fault" in found.signature
    assert state.reds == 1


def test_a_process_that_nobody_examined_still_ends_in_a_red() -> None:
    assert verdicts(settled(plan(1), Book().start(cell(0)))) == ["crash"]


def test_a_result_cut_short_is_an_error_and_not_a_crash() -> None:
    broken = BrokenLine(Process(1, "gw0", 10), "1-gw0-10.jsonl:2", cut=True)
    journal = Journal(tuple(Book().start(cell(0)).records), (broken,))
    state = reconcile(plan(1), journal, Ending(deaths={Process(1, "gw0", 10): CRASH}), today=TODAY)
    assert state.results[0].verdict is Verdict.ERROR
    assert "1-gw0-10.jsonl:2: the line is cut short" in state.results[0].reason


@pytest.mark.parametrize(
    ("seen", "first", "words"),
    [
        ([], "fault.raised", "fault a+b: the process ended before its apply had yielded: Segmentation fault"),
        ([APPLIED], "run.crash", "Segmentation fault"),
        ([APPLIED, JUDGED], "fault.unmended", "fault a+b: the process ended after its cell was judged: Segm"),
        ([APPLIED, JUDGED, MENDED], "fault.unmended", "fault a+b: the process ended after its cell was judged"),
    ],
)
def test_a_death_counts_only_while_its_fault_is_applied_and_not_yet_judged(
    seen: list[str], first: str, words: str
) -> None:
    of = cell(0, provider=Spec("reference+a+b"))
    book = Book().start(of)
    for stage in seen:
        book.add("fault", id=of.id, attempt=1, stage=stage)
    # What another process or an earlier attempt reached says nothing about this one.
    book.add("fault", id=of.id, attempt=2, stage=APPLIED).add("fault", pid=11, id=of.id, attempt=1, stage=APPLIED)
    made = dataclasses.replace(plan(1), cells=(of,))
    found = settled(made, book, deaths={Process(1, "gw0", 10): CRASH}).results[0]
    assert (found.verdict, found.findings[0].check) == (Verdict.CRASH, first)
    assert found.reason.startswith(words)
    assert found.findings[-1].check == "run.crash"


def test_of_a_cell_without_a_fault_a_death_is_the_cells() -> None:
    state = settled(plan(1), Book().start(cell(0)), deaths={Process(1, "gw0", 10): CRASH})
    assert [finding.check for finding in state.results[0].findings] == ["run.crash"]


@pytest.mark.parametrize(
    ("status", "notes"),
    [(-11, ("its process ended with SIGSEGV",)), (86, ("its process ended with exit 86",)), (None, ())],
)
def test_how_a_process_ended_is_noted_where_it_was_seen(status: int | None, notes: tuple[str, ...]) -> None:
    death = dataclasses.replace(CRASH, status=status)
    state = settled(plan(1), Book().start(cell(0)), deaths={Process(1, "gw0", 10): death})
    assert state.results[0].notes == notes


def test_interrupted_cell_is_an_error_but_a_stack_still_counts() -> None:
    book = Book().start(cell(0)).start(cell(1), worker="gw1", pid=11)
    state = settled(plan(3), book, interrupted=True, deaths={Process(1, "gw1", 11): CRASH})
    assert verdicts(state) == ["error", "crash", "error"]
    assert [r.reason for r in state.results] == ["interrupted", "Segmentation fault", "not run: interrupted"]


def test_a_cell_that_nothing_started_is_not_run() -> None:
    state = settled(plan(2), Book().ran(cell(0)), why_not_run="pytest ended with exit code 3 in round 1")
    assert verdicts(state) == ["pass", "error"]
    assert state.results[1].reason == "not run: pytest ended with exit code 3 in round 1"
    assert state.unstarted == (cell(1).id,)
    assert state.reds == 0, "a missing result is red in the end, but -x must not count it"


def test_what_x_left_out_is_listed_and_not_red() -> None:
    state = settled(plan(3), Book().ran(cell(0), Verdict.FAIL), stopped_by_maxfail=True)
    assert verdicts(state) == ["fail", "skip", "skip"]
    assert state.results[1].reason == "not run: stopped by -x/--maxfail"
    assert state.left_out == (cell(1).id, cell(2).id)


def test_two_verdicts_of_one_attempt_are_flaky() -> None:
    book = Book().ran(cell(0), Verdict.FAIL).ran(cell(0), worker="gw1", pid=11)
    state = settled(plan(1), book)
    assert verdicts(state) == ["flaky"]
    assert state.results[0].reason == "fail then pass"
    assert [a.verdict.value for a in state.results[0].attempts] == ["fail", "pass"]


def test_a_crash_that_somebody_repeated_until_green_is_flaky() -> None:
    book = Book().start(cell(0)).ran(cell(0), worker="gw1", pid=11)
    state = settled(plan(1), book, deaths={Process(1, "gw0", 10): CRASH})
    assert (verdicts(state), state.results[0].reason) == (["flaky"], "crash then pass")


def test_the_same_verdict_twice_is_a_defect_of_the_harness() -> None:
    state = settled(plan(1), Book().ran(cell(0)).ran(cell(0), worker="gw1", pid=11))
    assert verdicts(state) == ["error"]
    assert "reported 2 times" in state.results[0].reason


def test_a_start_that_was_followed_by_another_cell_is_an_error() -> None:
    state = settled(plan(2), Book().start(cell(0)).ran(cell(1)))
    assert verdicts(state) == ["error", "pass"]


def test_an_end_of_another_cell_than_was_started_is_an_error_of_both() -> None:
    state = settled(plan(2), Book().start(cell(0)).end(result(cell(1))))
    assert verdicts(state) == ["error", "error"]


def test_a_result_without_a_start_is_an_error() -> None:
    state = settled(plan(1), Book().end(result(cell(0))))
    assert (verdicts(state), state.results[0].reason) == (["error"], "pass without one")


def test_a_second_attempt_that_nobody_decided_on_is_flaky() -> None:
    book = Book().ran(cell(0), Verdict.FAIL).ran(cell(0), attempt=2, pid=12)
    assert verdicts(settled(plan(1), book)) == ["flaky"]


def test_unplanned_cells_are_faults_of_the_run() -> None:
    state = settled(plan(1), Book().ran(cell(0)).ran(cell(7)))
    assert verdicts(state) == ["pass"]
    assert len(state.faults) == 2
    assert "toy_linear[seed=7]" in state.faults[0]


def test_infra_and_oom_want_one_retry_and_others_none() -> None:
    book = Book().ran(cell(0), Verdict.INFRA).ran(cell(1), Verdict.OOM).ran(cell(2), Verdict.FAIL)
    assert settled(plan(3), book).to_retry == (cell(0).id, cell(1).id)


def test_infra_then_pass_is_a_pass_that_shows_both_attempts() -> None:
    state = settled(plan(1), Book().ran(cell(0), Verdict.INFRA).ran(cell(0), attempt=2, worker="main", pid=12))
    found = state.results[0]
    assert (found.verdict, state.to_retry) == (Verdict.PASS, ())
    assert [a.verdict.value for a in found.attempts] == ["infra", "pass"]
    assert found.notes[-1].startswith("retried alone in a fresh process after infra")


def test_infra_twice_stays_infra_and_is_not_tried_a_third_time() -> None:
    book = Book().ran(cell(0), Verdict.INFRA).ran(cell(0), Verdict.INFRA, attempt=2, pid=12)
    state = settled(plan(1), book)
    assert (verdicts(state), state.to_retry) == (["infra"], ())


def test_oom_then_pass_is_flaky_and_oom_then_red_is_that_red() -> None:
    decided = {Verdict.PASS: "flaky", Verdict.XFAIL: "flaky", Verdict.OOM: "oom", Verdict.FAIL: "fail"}
    for second, expected in decided.items():
        book = Book().ran(cell(0), Verdict.OOM).ran(cell(0), second, attempt=2, pid=12)
        assert verdicts(settled(plan(1), book)) == [expected]


def _waived(kind: str, expires: str = "2027-01-01", checks: tuple[str, ...] = ()) -> RunPlan:
    waiver = Waiver(kind, "known", "https://example.org/1", "me", expires, where="w.yaml:1", checks=checks)
    return plan(1, cells=(cell(0, expect=Expectation(waivers=(waiver,))),))


def test_a_quarantine_covers_crashes_and_an_xfail_does_not() -> None:
    book = Book().add("host", host={"arch": "sm90", "versions": {"torch": "2.13.0"}}).start(cell(0))
    death = {Process(1, "gw0", 10): CRASH}
    quarantined = settled(_waived("quarantine"), book, deaths=death).results[0]
    assert (quarantined.verdict, quarantined.gates, quarantined.arch) == (Verdict.CRASH, False, "sm90")
    assert settled(_waived("quarantine", "2025-01-01"), book, deaths=death).results[0].gates
    assert settled(_waived("quarantine", checks=("numerics.codes",)), book, deaths=death).results[0].gates
    assert not settled(_waived("quarantine", checks=("run.crash",)), book, deaths=death).results[0].gates
    expected = settled(_waived("xfail"), book, deaths=death).results[0]
    assert (expected.verdict, expected.gates) == (Verdict.CRASH, True)


def test_repro_names_the_baseline_that_the_cell_was_held_against() -> None:
    command = repro_command(plan(1, baseline=use(entry(0))), "a")
    assert command == "python runner.py --matrix m.yaml --baseline b.json --cell a -n 0"


def test_repro_is_a_shell_command() -> None:
    command = repro_command(plan(1, matrix="my matrix.yaml", overrides=("--set=seed=1,2",)), "a[b=c]")
    assert command == "python runner.py --matrix 'my matrix.yaml' --set=seed=1,2 --cell 'a[b=c]' -n 0"


lines = st.lists(
    st.tuples(
        st.sampled_from(["start", "end"]),
        st.integers(0, 3),  # cell; 3 is not in the plan
        st.sampled_from([("gw0", 10), ("gw1", 11), ("main", 12)]),
        st.integers(1, 2),
        st.sampled_from([Verdict.PASS, Verdict.FAIL, Verdict.OOM, Verdict.INFRA]),
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=300)
@given(lines, st.booleans(), st.booleans())
def test_whatever_a_journal_says(written: list[Any], interrupted: bool, maxfail: bool) -> None:
    """One result for every planned cell, in order; a green only from exactly one clean outcome of its last attempt."""
    book = Book()
    for kind, seed, (worker, pid), attempt, verdict in written:
        if kind == "start":
            book.start(cell(seed), attempt, worker=worker, pid=pid)
        else:
            book.end(result(cell(seed), verdict), attempt, worker=worker, pid=pid)
    state = settled(plan(3), book, interrupted=interrupted, stopped_by_maxfail=maxfail)
    assert [r.id for r in state.results] == [cell(seed).id for seed in range(3)]
    assert bool(state.faults) == any(seed == 3 for _, seed, *_ in written)
    for seed, found in enumerate(state.results):
        mine = [line for line in written if line[1] == seed]
        assert (found.id in state.unstarted) == (not mine)
        if found.verdict is Verdict.PASS:
            ends = [verdict for kind, *_, verdict in mine if kind == "end"]
            assert len(mine) == 2 * len(ends), "every start has its end"
            assert ends in ([Verdict.PASS], [Verdict.INFRA, Verdict.PASS])
            assert len(found.attempts) == len(ends)


def _leased(book: Book, alone: bool = False, used: int | None = None, **process: object) -> Book:
    told = {"index": 1, "token": "3", "uuid": "", "name": ""}
    book.add("lease", gpu=told, alone=alone, in_use_mib=used, **process)  # type: ignore[arg-type]
    return book.add("host", host={"gpus": [{"name": "NVIDIA H200", "uuid": "GPU-7"}]}, **process)  # type: ignore[arg-type]


def test_a_result_says_where_it_came_from_also_when_its_process_could_not() -> None:
    book = _leased(Book()).ran(cell(0)).start(cell(1))
    for found in settled(plan(2), book, deaths={Process(1, "gw0", 10): CRASH}).results:
        gpu = {"index": 1, "name": "NVIDIA H200", "uuid": "GPU-7", "alone": False}
        assert (found.worker, found.gpu) == ("gw0", gpu)
        assert found.attempts[0].gpu == "GPU 1 (NVIDIA H200)"


def test_a_torch_that_sees_no_gpu_used_none() -> None:
    book = Book().add("lease", gpu={"index": 0, "token": "0", "uuid": "u", "name": "n"}, alone=False)
    found = settled(plan(1), book.add("host", host={"gpus": []}).ran(cell(0))).results[0]
    assert (found.worker, found.gpu, found.attempts[0].gpu) == ("gw0", {}, "")


def test_a_retry_that_could_not_be_alone_does_not_say_so() -> None:
    for alone, note, got in (
        (True, "retried alone in a fresh process after oom", "pass alone"),
        (False, "retried in a fresh process beside other runs after oom", "pass later"),
    ):
        book = _leased(Book()).ran(cell(0), Verdict.OOM)
        _leased(book, alone, 4, worker="main", pid=12).ran(cell(0), attempt=2, worker="main", pid=12)
        found = settled(plan(1), book).results[0]
        assert (found.verdict, found.gpu["alone"], found.worker) == (Verdict.FLAKY, alone, "main")
        assert found.notes[-1].startswith(note)
        assert found.findings[-1].got.endswith(got)
        assert "4 MiB in use before" in found.attempts[1].gpu


def test_repro_of_a_selftest_is_the_selftest_of_the_cells_faults() -> None:
    clean = cell(0)
    broken = dataclasses.replace(clean, id="b", axes=dataclasses.replace(clean.axes, provider=Spec("fake+one+own:TWO")))
    made = dataclasses.replace(plan(2, cells=(clean, broken)), command=("python", "runner.py", "selftest", "-n", "2"))
    again = f"python runner.py selftest --matrix {made.matrix}"
    assert repro_command(made, "b") == f"{again} --fault one --fault own:TWO -n 0"
    assert repro_command(made, clean.id) == f"{again} -n 0"
