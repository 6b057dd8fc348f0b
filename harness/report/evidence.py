"""How much a run's results rest on: which cells executed, which were refused, what was never run natively."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.types import CellResult, Evidence, Verdict

EXECUTED = (Evidence.NATIVE, Evidence.EMULATED)
ELSEWHERE = (Evidence.REHEARSED, Evidence.TRACED)
GPUS = {"sm89": "L4, RTX 4090", "sm90": "H100, H200", "sm100": "B200", "sm103": "B300", "sm120": "RTX 5090"}
# What this harness has never run on.
UNTRIED = "B200 (sm100)"

# Checks of the judge that speak of FP8 arithmetic itself: scales, bytes and products against the oracle.
FP8_CHECKS = frozenset({"numerics.scales", "numerics.codes", "numerics.kernel"})
REFUSAL_CHECK = "error.refusal"


def fp8_judged(result: CellResult) -> bool:
    """True when the cell's FP8 arithmetic was held against the oracle, whatever came of it."""
    return not FP8_CHECKS.isdisjoint(result.checks)


def refused(result: CellResult) -> bool:
    """True when the cell passed because a documented error was raised under compile."""
    return result.verdict is Verdict.PASS and REFUSAL_CHECK in result.checks


def unjudged(result: CellResult) -> bool:
    """True for a pass that claims execution, but whose FP8 arithmetic was not judged (the oracle can't run it)."""
    return (
        result.verdict is Verdict.PASS
        and result.evidence in (*EXECUTED, Evidence.REHEARSED)
        and not refused(result)
        and not fp8_judged(result)
    )


def executed(result: CellResult) -> bool:
    """True when the cell was seen to run FP8 arithmetic on the architecture that it names: red, or passed with that
    arithmetic judged."""
    return result.evidence in EXECUTED and (result.verdict is not Verdict.PASS or fp8_judged(result))


@dataclass(frozen=True)
class EvidenceRow:
    """Counts of one level of evidence, which add up to ``cells``.

    ``passed`` leaves out two kinds of pass: ``refused``, by a documented refusal, and ``unjudged``, without a judgement
    of the FP8 arithmetic. ``other`` is neither passed nor red (skip, xfail).
    """

    level: str
    passed: int
    refused: int
    unjudged: int
    reds: int
    other: int
    cells: int


def evidence_rows(results: Sequence[CellResult]) -> list[EvidenceRow]:
    """One row for every level, at zero too; ``none`` (nothing was observed) only where there are such cells."""
    rows = []
    for evidence in Evidence:
        cells = [result for result in results if result.evidence is evidence]
        refusals, blank = sum(map(refused, cells)), sum(map(unjudged, cells))
        passed = sum(cell.verdict is Verdict.PASS for cell in cells) - refusals - blank
        reds = sum(cell.verdict.is_red for cell in cells)
        other = len(cells) - passed - refusals - blank - reds
        rows.append(EvidenceRow(evidence.value, passed, refusals, blank, reds, other, len(cells)))
    return [row for row in rows if row.cells or row.level != Evidence.NONE.value]


def nothing_executed(results: Sequence[CellResult]) -> bool:
    return bool(results) and not any(map(executed, results))


def never_native(results: Sequence[CellResult]) -> list[str]:
    """One line for every GPU architecture that was only traced or rehearsed; and, until this harness has run on one,
    the same of B200 in every report that has no cell of it executed."""
    lines = []
    for arch in dict.fromkeys(result.arch for result in results):
        cells = [result for result in results if result.arch == arch]
        counts = [(level.value, sum(cell.evidence is level for cell in cells)) for level in reversed(ELSEWHERE)]
        seen = " and ".join(f"{count} cells were {level}" for level, count in counts if count)
        if seen and not any(cell.evidence in EXECUTED for cell in cells):
            gpu = f"{GPUS[arch]} ({arch})" if arch in GPUS else arch
            lines.append(f"{gpu} has never been run natively here: {seen}, none was executed there.")
    if not any(UNTRIED in line for line in lines) and not any(r.arch == "sm100" and executed(r) for r in results):
        lines.append(f"{UNTRIED} has never been run natively with this harness: nothing here speaks for it.")
    return lines
