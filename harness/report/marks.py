"""One mark a cell: a letter that reads without colour, a style that helps with it, and the words of the legend."""

from __future__ import annotations

from dataclasses import dataclass

from harness.report.evidence import refused, unjudged
from harness.types import CellResult, Evidence, Verdict


@dataclass(frozen=True)
class Mark:
    """``style`` is rich's for the terminal; ``css`` the class name in the HTML report."""

    letter: str
    words: str
    style: str
    css: str


# A pass has a mark for each level of evidence: levels are never mixed.
PASS_MARKS = {
    Evidence.NATIVE: Mark(".", "pass, native", "green", "native"),
    Evidence.EMULATED: Mark(":", "pass, emulated", "cyan", "emulated"),
    Evidence.REHEARSED: Mark(";", "pass, rehearsed on the CPU", "blue", "rehearsed"),
    Evidence.TRACED: Mark(",", "pass, traced only", "blue", "traced"),
    Evidence.NEGATIVE: Mark("n", "pass, negative: refused on entry", "green", "negative"),
    Evidence.NONE: Mark("?", "pass without evidence", "bold red", "fail"),
}
VERDICT_MARKS = {
    Verdict.FAIL: Mark("F", "fail", "bold red", "fail"),
    Verdict.ERROR: Mark("E", "error", "bold magenta", "error"),
    Verdict.TIMEOUT: Mark("T", "timeout", "bold magenta", "error"),
    Verdict.CRASH: Mark("C", "crash", "bold magenta", "error"),
    Verdict.OOM: Mark("O", "oom", "bold magenta", "error"),
    Verdict.INFRA: Mark("I", "infra", "bold magenta", "error"),
    Verdict.XPASS: Mark("X", "xpass", "bold red", "fail"),
    Verdict.FLAKY: Mark("~", "flaky", "bold yellow", "flaky"),
    Verdict.XFAIL: Mark("x", "xfail", "yellow", "xfail"),
    Verdict.SKIP: Mark("s", "skip", "yellow", "skip"),
}
REFUSED = Mark("r", "pass, refused under compile as documented", "green", "negative")
UNJUDGED = Mark("u", "pass, numerics not judged", "yellow", "skip")
QUARANTINED = Mark("q", "red in quarantine", "yellow", "xfail")
NOT_PLANNED = Mark("-", "no such cell", "dim", "absent")
LEGEND = (*PASS_MARKS.values(), REFUSED, UNJUDGED, *VERDICT_MARKS.values(), QUARANTINED, NOT_PLANNED)


def mark_of(result: CellResult) -> Mark:
    """The mark of one result. A red that a quarantine keeps from gating has a mark of its own."""
    if result.verdict is Verdict.PASS:
        if refused(result):
            return REFUSED
        return UNJUDGED if unjudged(result) else PASS_MARKS[result.evidence]
    if result.verdict.is_red and not result.gates:
        return QUARANTINED
    return VERDICT_MARKS[result.verdict]


def duration(seconds: float) -> str:
    """Seconds as a reader says them: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``1 h 05 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def cell_seconds(result: CellResult) -> float:
    """Wall seconds of one cell: all its attempts, else its own ``total_s``."""
    spent = sum(attempt.seconds for attempt in result.attempts)
    return spent or float(result.timing.get("total_s", 0.0))
