"""What becomes of a cell whose GPU or memory is gone: its own red, never the next cell's."""

from __future__ import annotations

import dataclasses

import pytest

from harness.faults.fault import RAISED, UNMENDED, FaultError
from harness.run import execute
from harness.types import NOT_KEPT, RETIRE_WORKER, Cell, CellResult, Expectation, Finding, Spec, Verdict, Waiver
from tests.support.cells import cell, result

ASSERT = "CUDA error: device-side assert triggered"


def executed(
    monkeypatch: pytest.MonkeyPatch, outcome: CellResult | Exception, lost: str = "", of: Cell | None = None
) -> CellResult:
    """execute_cell, with a program that ends in ``outcome`` and a GPU that then says ``lost``."""

    def run(one: Cell) -> CellResult:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(execute, "_execute", run)
    monkeypatch.setattr(execute, "lost_context", lambda: lost)
    return execute.execute_cell(of or cell(0))


def test_a_green_cell_that_leaves_a_lost_context_is_red_and_its_process_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = executed(monkeypatch, result(cell(0)), ASSERT)
    assert (found.verdict, found.notes) == (Verdict.FAIL, (RETIRE_WORKER,))
    assert (found.findings[0].check, found.findings[0].got) == ("run.device", ASSERT)
    assert found.signature


def test_a_result_keeps_a_finding_of_every_check_and_counts_the_others() -> None:
    codes = [Finding("numerics.codes", "0", str(index)) for index in range(25)]
    late = [Finding("state.unchanged", "0", str(index)) for index in range(3)]
    held = execute.kept([*codes, *late])
    assert held == (*codes[:20], late[0])
    assert list(execute._left_out([*codes, *late], held)) == [f"{NOT_KEPT}numerics.codes 5, state.unchanged 2"]
    few = [*codes[:17], *late]
    assert execute.kept(few) == tuple(few)
    assert list(execute._left_out(few, execute.kept(few))) == []
    assert execute.kept([]) == ()


def test_a_green_cell_on_a_gpu_that_works_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = executed(monkeypatch, result(cell(0)))
    assert (found.verdict, found.notes, found.findings) == (Verdict.PASS, (), ())


def test_a_lost_gpu_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    found = executed(monkeypatch, result(cell(0)), "CUDA error: uncorrectable ECC error encountered")
    assert (found.verdict, found.findings[0].check) == (Verdict.INFRA, "run.infra")


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.XFAIL, Verdict.OOM])
def test_a_red_that_is_explained_already_keeps_its_cause(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    before = result(cell(0), verdict, notes=("n", RETIRE_WORKER))
    found = executed(monkeypatch, before, "CUDA error: an error with a text that nobody has listed")
    assert (found.verdict, found.findings, found.notes) == (verdict, before.findings, ("n", RETIRE_WORKER))
    again = executed(monkeypatch, result(cell(0), verdict), "CUDA error: an error with a text that nobody has listed")
    assert again.notes == (RETIRE_WORKER,)


def test_an_observer_that_stumbles_over_a_lost_context_is_not_the_harness_failing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        try:
            raise RuntimeError(ASSERT)
        except RuntimeError as cause:
            raise ValueError("the state can't be read") from cause
    except ValueError as error:
        found = executed(monkeypatch, error, ASSERT)
    assert (found.verdict, found.notes) == (Verdict.FAIL, (RETIRE_WORKER,))
    assert (found.findings[0].check, found.findings[0].got) == ("run.device", ASSERT)
    assert "the state can't be read" in found.detail
    assert found.findings[0].site.rpartition(":")[0].endswith("test_run_execute.py")


def test_a_waiver_may_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waiver = Waiver("xfail", "known", "", "me", "2999-01-01")
    of = dataclasses.replace(cell(0), expect=Expectation(waivers=(waiver,)))
    found = executed(monkeypatch, RuntimeError(ASSERT), ASSERT, of)
    assert (found.verdict, RETIRE_WORKER in found.notes) == (Verdict.XFAIL, True)


@pytest.mark.parametrize(
    ("error", "verdict", "check"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), Verdict.OOM, "run.oom"),
        (OSError(28, "No space left on device"), Verdict.INFRA, "run.infra"),
        (KeyError("x"), Verdict.ERROR, "harness.error"),
    ],
)
def test_other_exceptions_that_escape(
    monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: Verdict, check: str
) -> None:
    found = executed(monkeypatch, error)
    assert (found.verdict, found.findings[0].check, found.notes) == (verdict, check, ())
    assert "Traceback" in found.detail


def test_after_out_of_memory_the_rest_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[bool] = []
    monkeypatch.setattr(execute, "free_cached", lambda: freed.append(True))
    executed(monkeypatch, result(cell(0)))
    assert freed == []
    executed(monkeypatch, result(cell(0), Verdict.OOM))
    assert freed == [True]


def test_a_cell_that_switches_compilation_off_takes_its_process_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every later cell there would be an error of the harness, and nobody's fault but this cell's."""
    monkeypatch.setattr(execute, "compile_switches", lambda: ["suppress_errors"])
    assert executed(monkeypatch, result(cell(0), Verdict.FAIL)).notes == (RETIRE_WORKER,)
    met = executed(monkeypatch, RuntimeError("compilation is switched off"))  # by the environment: no process is better
    assert (met.verdict, met.notes) == (Verdict.ERROR, ())


@pytest.mark.parametrize("check", [RAISED, UNMENDED])
def test_a_fault_that_failed_is_told_and_its_process_goes(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    found = executed(monkeypatch, FaultError(check, "f", "not mended: ops.multiply", "my_faults.py:3"))
    (finding,) = found.findings
    assert (found.verdict, finding.check, finding.site) == (Verdict.ERROR, check, "my_faults.py:3")
    assert finding.got == "fault f: not mended: ops.multiply"
    assert found.notes == (RETIRE_WORKER,)


@pytest.mark.parametrize(
    ("provider", "notes"),
    [
        ("reference", ()),
        ("reference+leaky_exit", ()),
        ("reference+my_faults:F", (RETIRE_WORKER,)),
        ("reference+leaky_exit+my_faults:F", (RETIRE_WORKER,)),
    ],
)
def test_a_process_in_which_a_fault_of_the_users_own_ran_goes(
    monkeypatch: pytest.MonkeyPatch, provider: str, notes: tuple[str, ...]
) -> None:
    one = cell(0)
    seeded = dataclasses.replace(one, axes=dataclasses.replace(one.axes, provider=Spec(provider)))
    assert executed(monkeypatch, result(seeded), of=seeded).notes == notes
