"""What becomes of a fault: caught by the check that it names, or not, and what that makes of the exit code."""

from __future__ import annotations

import dataclasses

import pytest

from harness.run.execute import kept
from harness.selftest.outcome import End, Outcome, as_expected, exit_code_of, outcome_of, word_of
from harness.selftest.plan import Seeded
from harness.types import CellResult, Finding, Spec, Verdict
from tests.support.cells import cell, result

TWIN = cell(0)
FAULTY = dataclasses.replace(cell(1), id="faulty", axes=dataclasses.replace(TWIN.axes, provider=Spec("reference+f")))
SEEDED = Seeded("f", "something", "state.unchanged", FAULTY, TWIN)
NAMED, OTHER = Finding("state.unchanged", "0", "1"), Finding("numerics.scales", "2", "3")


def red(*findings: Finding, verdict: Verdict = Verdict.FAIL) -> CellResult:
    return result(FAULTY, verdict, findings=findings, reason=str(findings[0]) if findings else "died")


def outcome(faulty: CellResult | None, twin: CellResult | None = None, seeded: Seeded = SEEDED) -> Outcome:
    results = [one for one in (faulty, twin or result(TWIN)) if one is not None]
    return outcome_of(seeded, {one.id: one for one in results})


def test_caught_by_the_named_check_also_when_others_come_first() -> None:
    seen = outcome(red(OTHER, NAMED))
    assert (seen.end, seen.reason, seen.checks) == (End.CAUGHT, str(NAMED), ("numerics.scales", "state.unchanged"))


def test_a_pass_is_missed() -> None:
    seen = outcome(result(FAULTY))
    assert seen.end is End.MISSED
    assert "state.unchanged said nothing, nor did any other check; pass" in seen.reason


def test_a_finding_in_a_cell_that_is_not_red_is_missed() -> None:
    seen = outcome(result(FAULTY, Verdict.XFAIL, findings=(NAMED,)))
    assert (seen.end, seen.reason) == (End.MISSED, "state.unchanged found something, but nothing is red; xfail")


def test_a_skip_of_the_faulty_cell_alone_is_missed() -> None:
    seen = outcome(result(FAULTY, Verdict.SKIP, reason="no kernel"))
    assert (seen.end, seen.reason) == (
        End.MISSED,
        "the cell with the fault alone was skipped, it showed nothing: no kernel",
    )


def test_red_by_another_check_alone_is_not_caught() -> None:
    seen = outcome(red(OTHER))
    assert seen.end is End.OTHER
    assert seen.end.is_red
    assert str(OTHER) in seen.reason


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.XFAIL, Verdict.ERROR, Verdict.FLAKY])
def test_without_a_green_twin_nothing_is_proved(verdict: Verdict) -> None:
    seen = outcome(red(NAMED), result(TWIN, verdict, reason="why"))
    assert seen.end is End.UNPROVED
    assert "without the fault" in seen.reason


def test_only_both_cells_skipped_skip_the_fault() -> None:
    skipped = result(TWIN, Verdict.SKIP, reason="not installed")
    assert outcome(result(FAULTY, Verdict.SKIP, reason="not installed"), skipped).end is End.SKIPPED
    for faulty in (red(NAMED), result(FAULTY)):
        seen = outcome(faulty, skipped)
        assert (seen.end, seen.reason) == (End.UNPROVED, "without the fault: skip: not installed")


@pytest.mark.parametrize(("check", "end"), [("fault.unmended", End.UNMENDED), ("fault.raised", End.RAISED)])
def test_a_fault_that_failed_itself_is_neither_caught_nor_missed(check: str, end: End) -> None:
    failed = Finding(check, "a fault that mends", "fault f: leaves ops.multiply")
    for twin in (result(TWIN), result(TWIN, Verdict.FAIL)):
        seen = outcome(red(failed, NAMED, verdict=Verdict.ERROR), twin)
        assert (seen.end, seen.reason, seen.end.is_red) == (end, "leaves ops.multiply", True)


@pytest.mark.parametrize("check", ["run.not_run", "run.interrupted"])
def test_what_did_not_run_is_named_so(check: str) -> None:
    never = (Finding(check, "a result", "not run: interrupted"),)
    faulty = result(FAULTY, Verdict.ERROR, findings=never)
    twin = result(TWIN, Verdict.ERROR, findings=never)
    for seen in (outcome(faulty), outcome(red(NAMED), twin), outcome(faulty, twin)):
        assert (seen.end, seen.reason, seen.end.is_red) == (End.NOT_RUN, "not run: interrupted", True)


def test_a_result_that_is_not_there_is_red() -> None:
    assert outcome(None).end is End.LOST
    assert outcome_of(SEEDED, {}).end.is_red


def test_verdicts_of_the_run_layer_are_checks_themselves() -> None:
    seeded = dataclasses.replace(SEEDED, caught_by="run.oom")
    assert outcome(red(OTHER, verdict=Verdict.OOM), seeded=seeded).end is End.CAUGHT
    assert outcome(red(OTHER, verdict=Verdict.CRASH), seeded=seeded).end is End.OTHER
    for nothing in ("run.pass", "run.fail", "run.error"):
        assert outcome(red(OTHER), seeded=dataclasses.replace(SEEDED, caught_by=nothing)).end is End.OTHER


DEADLY = dataclasses.replace(SEEDED, caught_by="run.crash", dies="SIGSEGV")


def died(*findings: Finding, notes: tuple[str, ...], verdict: Verdict = Verdict.CRASH) -> CellResult:
    return dataclasses.replace(red(*findings, verdict=verdict), notes=notes)


def test_a_death_is_caught_only_where_it_is_the_one_that_the_fault_states() -> None:
    crash = Finding("run.crash", "the cell ends with a result", "Segmentation fault")
    seen = outcome(died(crash, notes=("other", "its process ended with SIGSEGV")), seeded=DEADLY)
    assert (seen.end, seen.reason) == (End.CAUGHT, str(crash))
    killed = outcome(died(crash, notes=("its process ended with SIGKILL",)), seeded=DEADLY)
    assert killed.end is End.OTHER
    assert killed.reason.startswith("its process ended with SIGKILL and the fault says SIGSEGV: ")
    unseen = outcome(died(crash, notes=()), seeded=DEADLY)
    assert unseen.end is End.OTHER
    assert unseen.reason.startswith("nobody saw how its process ended and the fault says SIGSEGV: ")
    unstated = dataclasses.replace(DEADLY, dies="")
    assert outcome(died(crash, notes=("its process ended with SIGSEGV",)), seeded=unstated).end is End.OTHER
    twin = result(TWIN, Verdict.FAIL)
    assert outcome(died(crash, notes=("its process ended with SIGKILL",)), twin, DEADLY).end is End.UNPROVED


@pytest.mark.parametrize(
    ("check", "verdict", "end"),
    [
        ("fault.raised", Verdict.CRASH, End.RAISED),
        ("fault.raised", Verdict.TIMEOUT, End.RAISED),
        ("fault.unmended", Verdict.CRASH, End.UNMENDED),
        ("fault.unmended", Verdict.OOM, End.UNMENDED),
    ],
)
def test_a_fault_that_died_in_its_own_apply_is_not_caught(check: str, verdict: Verdict, end: End) -> None:
    own = Finding(check, "a fault that mends", "fault f: the process ended before its apply had yielded: SIGSEGV")
    named = f"run.{verdict.value}"
    seeded = dataclasses.replace(SEEDED, caught_by=named, dies="SIGSEGV")
    notes = ("its process ended with SIGSEGV",)
    seen = outcome(died(own, Finding(named, "a result", "gone"), notes=notes, verdict=verdict), seeded=seeded)
    assert (seen.end, seen.reason) == (end, "the process ended before its apply had yielded: SIGSEGV")


def test_the_word_of_a_check_is_its_first_finding_wherever_it_stands() -> None:
    many = [Finding("numerics.codes", "0", str(index)) for index in range(4)]
    again = dataclasses.replace(NAMED, got="2")
    found = red(OTHER, *many, NAMED, again)
    assert word_of(found, "state.unchanged") == str(NAMED)
    assert word_of(found, "numerics.codes") == str(many[0])
    assert word_of(found, "numerics.scales") == str(OTHER)
    assert word_of(found, "fp8.gemms") == ""
    out = dataclasses.replace(found, verdict=Verdict.OOM, reason="no room")
    assert word_of(out, "run.oom") == "no room"
    assert word_of(out, "run.crash") == ""


def test_a_check_that_speaks_after_twenty_others_has_caught_its_fault() -> None:
    many = [Finding("numerics.codes", "0", str(index)) for index in range(30)]
    assert outcome(red(*kept([*many, NAMED]))).end is End.CAUGHT
    assert outcome(red(*kept(many))).end is End.OTHER


def test_what_a_machine_lacks_skips() -> None:
    seen = outcome_of(SEEDED, {}, "needs a CUDA device")
    assert (seen.end, seen.reason, seen.seconds) == (End.SKIPPED, "needs a CUDA device", 0.0)


def ends(*found: End) -> list[Outcome]:
    return [Outcome("f", "b", f"cell{i}", "c.d", end, "") for i, end in enumerate(found)]


def test_exit_codes() -> None:
    assert exit_code_of(ends(End.CAUGHT, End.CAUGHT)) == (0, "2 caught, each by the check it names")
    assert exit_code_of(ends(End.CAUGHT, End.SKIPPED))[0] == 0
    for end in End:
        assert exit_code_of(ends(End.CAUGHT, end))[0] == (1 if end.is_red else 0)
    assert exit_code_of(ends(End.CAUGHT, End.SKIPPED), no_skips=True) == (
        1,
        "1 of 2 skipped, and --no-skips demands every one",
    )
    assert exit_code_of(ends(End.CAUGHT), no_skips=True)[0] == 0
    assert exit_code_of(ends(End.SKIPPED), no_skips=True)[0] == 1
    assert exit_code_of(ends(End.SKIPPED))[0] == 5
    assert exit_code_of([])[0] == 5
    assert exit_code_of(ends(End.CAUGHT), interrupted=True)[0] == 2
    assert exit_code_of(ends(End.CAUGHT), internal=True)[0] == 3
    assert exit_code_of(ends(End.CAUGHT), interrupted=True, internal=True)[0] == 3


def test_progress_shows_a_caught_fault_as_wanted_a_missed_one_as_red_and_a_skip_as_a_skip() -> None:
    assert as_expected(red(NAMED), [SEEDED]).verdict is Verdict.PASS
    missed = as_expected(result(FAULTY), [SEEDED])
    assert missed.verdict is Verdict.FAIL
    assert missed.reason.startswith("f: state.unchanged said nothing")
    twin = result(TWIN, Verdict.FAIL)
    assert as_expected(twin, [SEEDED]) is twin
    skipped = result(FAULTY, Verdict.SKIP, reason="not installed")
    assert as_expected(skipped, [SEEDED]) is skipped


def test_progress_wants_every_check_that_is_named_for_a_cell() -> None:
    both = [SEEDED, dataclasses.replace(SEEDED, caught_by="numerics.scales")]
    assert as_expected(red(NAMED, OTHER), both).verdict is Verdict.PASS
    half = as_expected(red(NAMED), both)
    assert half.reason.startswith("f: numerics.scales said nothing")
