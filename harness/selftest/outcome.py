"""What became of a seeded fault: caught by the check it names, or not. Pure functions on results."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.faults.fault import DEATHS, RAISED, UNMENDED
from harness.run.reconcile import ENDED
from harness.selftest.checks import OF_THE_RUN
from harness.selftest.plan import Seeded
from harness.types import CellResult, Verdict


class End(enum.Enum):
    """``caught``: by the named check, and the cell without the fault is green. ``missed``: the cell is not red.
    ``other``: red, but the named check said nothing. ``unproved``: the cell without the fault is red itself.
    ``unmended``: the fault left something replaced. ``raised``: its ``apply`` raised. ``skipped``: can't be shown on
    this machine. ``not run``: the user interrupted, or no process started it. ``lost``: there is no result."""

    CAUGHT = "caught"
    MISSED = "missed"
    OTHER = "other"
    UNPROVED = "unproved"
    UNMENDED = "unmended"
    RAISED = "raised"
    SKIPPED = "skipped"
    NOT_RUN = "not run"
    LOST = "lost"

    @property
    def is_red(self) -> bool:
        return self not in (End.CAUGHT, End.SKIPPED)


NEVER_ENDED = ("run.not_run", "run.interrupted")
OF_THE_FAULT = {RAISED: End.RAISED, UNMENDED: End.UNMENDED}


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


def outcome_of(seeded: Seeded, results: Mapping[str, CellResult], lacks: str = "") -> Outcome:
    """What became of ``seeded``. ``lacks``: why this machine can't show it; empty where it can."""
    faulty, twin = results.get(seeded.cell.id), results.get(seeded.twin.id)
    end, reason = (End.SKIPPED, lacks) if lacks else _became(seeded, faulty, twin)
    return Outcome(
        fault=seeded.fault,
        breaks=seeded.breaks,
        cell=seeded.cell.id,
        caught_by=seeded.caught_by,
        end=end,
        reason=reason,
        checks=checks_of(faulty) if faulty else (),
        seconds=round(sum(_seconds(result) for result in (faulty, twin) if result and not lacks), 3),
        report=seeded.report,
    )


def _became(seeded: Seeded, faulty: CellResult | None, twin: CellResult | None) -> tuple[End, str]:
    if faulty is None or twin is None:
        return End.LOST, f"no result for {seeded.cell.id if faulty is None else seeded.twin.id}"
    if unfinished := next(filter(None, map(_why_unfinished, (faulty, twin))), ""):
        return End.NOT_RUN, unfinished
    for check, end in OF_THE_FAULT.items():
        if word := next((finding.got for finding in faulty.findings if finding.check == check), ""):
            return end, word.removeprefix(f"fault {seeded.fault}: ")
    if twin.verdict is faulty.verdict is Verdict.SKIP:
        return End.SKIPPED, twin.reason
    if faulty.verdict is Verdict.SKIP:
        return End.MISSED, f"the cell with the fault alone was skipped, it showed nothing: {faulty.reason}"
    named = word_of(faulty, seeded.caught_by)
    if twin.verdict is Verdict.PASS and named and (why := _died_otherwise(seeded, faulty)):
        return End.OTHER, f"{why}: {named}"
    return end_of(
        seeded.caught_by,
        twin="" if twin.verdict is Verdict.PASS else f"{twin.verdict.value}: {twin.reason}",
        named=named,
        is_red=faulty.verdict.is_red,
        told=faulty.verdict.value + (f": {faulty.reason}" if faulty.reason else ""),
    )


def _died_otherwise(seeded: Seeded, faulty: CellResult) -> str:
    """Why the end of its process, which the fault must bring about, was not its own; empty where it was."""
    if seeded.caught_by not in DEATHS or ENDED + seeded.dies in faulty.notes:
        return ""
    seen = next((note for note in faulty.notes if note.startswith(ENDED)), "nobody saw how its process ended")
    return f"{seen} and the fault says {seeded.dies}"


def end_of(check: str, *, twin: str, named: str, is_red: bool, told: str) -> tuple[End, str]:
    """The end of a fault that was run, and the reason.

    Args:
        check: the one that must find it.
        twin: why the run without the fault is not as it must be; empty where it is.
        named: what ``check`` found; empty if nothing.
        is_red: the run with the fault is.
        told: how that one ended, in words.
    """
    if twin:
        return End.UNPROVED, f"without the fault: {twin}"
    if is_red and named:
        return End.CAUGHT, named
    if is_red:
        return End.OTHER, f"{check} said nothing; {told}"
    found = (
        f"{check} found something, but nothing is red" if named else f"{check} said nothing, nor did any other check"
    )
    return End.MISSED, f"{found}; {told}"


def _why_unfinished(result: CellResult) -> str:
    return next((finding.got for finding in result.findings if finding.check in NEVER_ENDED), "")


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


def exit_code_of(
    outcomes: Sequence[Outcome], *, interrupted: bool = False, internal: bool = False, no_skips: bool = False
) -> tuple[int, str]:
    """The exit code of a selftest and its meaning in words. 0: every fault that this machine can show was caught.

    ``no_skips``: a fault that it can't show is not good enough.
    """
    if internal:
        return 3, "the run itself failed"
    if interrupted:
        return 2, "interrupted"
    reds = [outcome for outcome in outcomes if outcome.end.is_red]
    if reds:
        return 1, f"{len(reds)} of {len(outcomes)} not caught as they must be"
    caught = sum(outcome.end is End.CAUGHT for outcome in outcomes)
    skipped = len(outcomes) - caught
    if no_skips and skipped:
        return 1, f"{skipped} of {len(outcomes)} skipped, and --no-skips demands every one"
    if not caught:
        return 5, "nothing was shown: every fault was skipped"
    return 0, f"{caught} caught, each by the check it names" + (f"; {skipped} skipped" if skipped else "")


def as_expected(result: CellResult, seeded: Sequence[Seeded]) -> CellResult:
    """``result`` for the progress display: a fault that was caught is what was wanted, one that was missed is red, a
    skip stays one.

    Args:
        seeded: every fault of the selftest.
    """
    here = [one for one in seeded if one.cell.id == result.id]
    if not here or result.verdict is Verdict.SKIP:
        return result
    outcomes = [outcome_of(one, {one.cell.id: result, one.twin.id: _green(result)}) for one in here]
    red = next((outcome for outcome in outcomes if outcome.end is not End.CAUGHT), None)
    if red is None:
        return dataclasses.replace(result, verdict=Verdict.PASS, reason="", signature="", findings=())
    reason = f"{red.fault}: {red.reason}"
    return dataclasses.replace(result, verdict=Verdict.FAIL, reason=reason, signature=reason, findings=())


def _green(result: CellResult) -> CellResult:
    return dataclasses.replace(result, verdict=Verdict.PASS, findings=())
