"""What becomes of a fault of the front: from what its run and the same run without it said."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from harness.faults.front import FrontFault
from harness.selftest import front_outcomes as module
from harness.selftest.front import Shown, Stopped
from harness.selftest.front_outcomes import front_outcomes
from harness.selftest.outcome import End

FAULT = FrontFault("made", "something", "audit.lost", nullcontext)
CAUGHT = Shown(3, frozenset({"audit.lost"}), "audit.lost: gone", 1.0)
CLEAN = Shown(1, frozenset({"fake.check"}), "1 cell not as expected", 0.5)


def ended(monkeypatch: pytest.MonkeyPatch, broken: Any, clean: Any, *faults: FrontFault) -> list[Any]:
    calls: list[tuple[str, bool]] = []

    def shown(fault: FrontFault, directory: Path, *, broken: bool, timeout: float, stopped: Any) -> Shown:
        calls.append((fault.name, broken))
        answer = said[broken]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    said = {True: broken, False: clean}
    monkeypatch.setattr(module, "shown", shown)
    outcomes = front_outcomes(faults or (FAULT,), Path("unused"), workers=2, timeout=1.0)
    return [*outcomes, sorted(calls)]


@pytest.mark.parametrize(
    ("broken", "clean", "end", "reason"),
    [
        (CAUGHT, CLEAN, End.CAUGHT, "audit.lost: gone"),
        (Shown(0, frozenset({"audit.lost"}), "all as expected", 1.0), CLEAN, End.MISSED, "exit code 0"),
        (
            Shown(0, frozenset(), "all as expected", 1.0),
            CLEAN,
            End.MISSED,
            "audit.lost said nothing, nor did any other check; exit code 0",
        ),
        (Shown(1, frozenset({"audit.files"}), "other", 1.0), CLEAN, End.OTHER, "audit.lost said nothing; exit code 1"),
        (CAUGHT, Shown(0, frozenset(), "all as expected", 1.0), End.UNPROVED, "without the fault: exit code 0"),
        (CAUGHT, Shown(1, frozenset({"audit.files"}), "x", 1.0), End.UNPROVED, "without the fault: exit code 1"),
        (subprocess.TimeoutExpired("x", 1.0), CLEAN, End.LOST, "still running after 1 s"),
        (Stopped(), CLEAN, End.NOT_RUN, "interrupted"),
        (CAUGHT, Stopped(), End.NOT_RUN, "without the fault: interrupted"),
        (CAUGHT, OSError("disk full"), End.LOST, "without the fault: disk full"),
    ],
)
def test_ends(monkeypatch: pytest.MonkeyPatch, broken: Any, clean: Any, end: End, reason: str) -> None:
    outcome, _ = ended(monkeypatch, broken, clean)
    assert outcome.end is end
    assert reason in outcome.reason


def test_one_honest_run_serves_every_fault_of_the_same_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    other = FrontFault("other", "something", "audit.lost", nullcontext)
    elsewhere = FrontFault("elsewhere", "something", "audit.lost", nullcontext, matrix={"schema_version": 1})
    *outcomes, calls = ended(monkeypatch, CAUGHT, CLEAN, FAULT, other, elsewhere)
    assert [outcome.fault for outcome in outcomes] == ["made", "other", "elsewhere"]
    assert [name for name, broken in calls if not broken] == ["elsewhere", "made"]
    assert {outcome.seconds for outcome in outcomes} == {1.5}
