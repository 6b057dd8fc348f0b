"""What became of a seeded fault: caught by the check it names, or not. Pure functions on results."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.selftest.plan import Seeded
from harness.types import CellResult, Verdict

# Ends of a process that no check in it can tell of; any other red has a check of its own.
OF_THE_RUN = ("run.crash", "run.timeout", "run.oom")


class End(enum.Enum):
    """``caught``: by the named check, and the cell without the fault is green. ``missed``: the cell is not red.
    ``other``: red, but the named check said nothing. ``unproved``: the cell without the fault is red itself.
    ``skipped``: can't be shown on this machine. ``lost``: there is no result."""

    CAUGHT = "caught"
    MISSED = "missed"
    OTHER = "other"
    UNPROVED = "unproved"
    SKIPPED = "skipped"
    LOST = "lost"

    @property
    def is_red(self) -> bool:
        return self not in (End.CAUGHT, End.SKIPPED)


@dataclass(frozen=True)
class Outcome:
    """One fault in one cell. ``checks``: those that found something, in the order of blame; ``seconds``: both cells."""

    fault: str
    breaks: str
    cell: str
    caught_by: str
    end: End
    reason: str
    checks: tuple[str, ...] = ()
    seconds: float = 0.0
    report: str = ""


def outcome_of(seeded: Seeded, results: Mapping[str, CellResult], absent: str = "") -> Outcome:
    """What became of ``seeded``. ``absent``: why this machine can't show it; empty where it can."""
    faulty, twin = results.get(seeded.cell.id), results.get(seeded.twin.id)
    end, reason = (End.SKIPPED, absent) if absent else _end(seeded, faulty, twin)
    return Outcome(
        fault=seeded.fault,
        breaks=seeded.breaks,
        cell=seeded.cell.id,
        caught_by=seeded.caught_by,
        end=end,
        reason=reason,
        checks=checks_of(faulty) if faulty else (),
        seconds=round(sum(_seconds(result) for result in (faulty, twin) if result and not absent), 3),
        report=seeded.report,
    )


def _end(seeded: Seeded, faulty: CellResult | None, twin: CellResult | None) -> tuple[End, str]:
    if faulty is None or twin is None:
        return End.LOST, f"no result for {seeded.cell.id if faulty is None else seeded.twin.id}"
    if twin.verdict is Verdict.SKIP:
        return End.SKIPPED, twin.reason
    if twin.verdict is not Verdict.PASS:
        return End.UNPROVED, f"without the fault the cell is {twin.verdict.value}: {twin.reason}"
    named = word_of(faulty, seeded.caught_by)
    if named and faulty.verdict.is_red:
        return End.CAUGHT, named
    if faulty.verdict.is_red:
        return End.OTHER, f"{seeded.caught_by} said nothing; {faulty.verdict.value}: {faulty.reason}"
    told = f": {faulty.reason}" if faulty.reason else ""
    return End.MISSED, f"{seeded.caught_by} said nothing, nor did any other check; {faulty.verdict.value}{told}"


def word_of(result: CellResult, check: str) -> str:
    """The first finding of ``check`` as text, empty without one. A verdict of the run layer (``run.oom``) is the check
    itself: what the memory ran out in may be an exception that another check words."""
    if check in OF_THE_RUN and check == f"run.{result.verdict.value}":
        return result.reason
    return next((str(finding) for finding in result.findings if finding.check == check), "")


def checks_of(result: CellResult) -> tuple[str, ...]:
    """Names of the checks that found something, each once."""
    return tuple(dict.fromkeys(finding.check for finding in result.findings))


def _seconds(result: CellResult) -> float:
    return float(result.timing.get("total_s", 0.0))


def exit_code_of(outcomes: Sequence[Outcome], *, interrupted: bool = False, internal: bool = False) -> tuple[int, str]:
    """The exit code of a selftest and its meaning in words. 0: every fault that this machine can show was caught."""
    if internal:
        return 3, "the run itself failed"
    if interrupted:
        return 2, "interrupted"
    reds = [outcome for outcome in outcomes if outcome.end.is_red]
    if reds:
        return 1, f"{len(reds)} of {len(outcomes)} not caught as they must be"
    caught = sum(outcome.end is End.CAUGHT for outcome in outcomes)
    if not caught:
        return 5, "nothing was shown: every fault was skipped"
    skipped = len(outcomes) - caught
    return 0, f"{caught} caught, each by the check it names" + (f"; {skipped} skipped" if skipped else "")


def as_expected(result: CellResult, by_cell: Mapping[str, Seeded]) -> CellResult:
    """``result`` for the progress display: a fault that was caught is what was wanted, one that was missed is red."""
    seeded = by_cell.get(result.id)
    if seeded is None:
        return result
    outcome = outcome_of(seeded, {seeded.cell.id: result, seeded.twin.id: _green(result)})
    if outcome.end is End.CAUGHT:
        return dataclasses.replace(result, verdict=Verdict.PASS, reason="", signature="", findings=())
    reason = f"{seeded.fault}: {outcome.reason}"
    return dataclasses.replace(result, verdict=Verdict.FAIL, reason=reason, signature=reason, findings=())


def _green(result: CellResult) -> CellResult:
    return dataclasses.replace(result, verdict=Verdict.PASS, findings=())
