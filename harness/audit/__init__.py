"""The audit: a finished run looked at once more, from its files alone, by code that shares nothing with the rest.

Whoever schedules, reconciles, forgives, counts and reports may be wrong in one place and make a red run green. So at
the end of every run its plan, its journal and its reports are read back from the disk, and what may be green is derived
a second time: nothing in this package imports anything of the rest of ``harness``. It never makes anything greener. It
is one-sided: a green must be earned line by line, a red needs no proof.

==================  ==================================================================================
finding             what it says
==================  ==================================================================================
audit.files         a file of the run is missing, cut short or not what it must be
audit.lost          a planned cell has no result
audit.twice         a cell has two results, or ran more often than one permitted retry and is not red
audit.unplanned     a result, or a journal line, that belongs to no cell of this plan
audit.journal       a result that is not red, and no start and end in one process of this run behind it
audit.verdict       a verdict that contradicts its own findings, or what the cell's process recorded
audit.waiver        a cell that is forgiven, or does not gate, and no waiver of its own that holds today
audit.require       exit code 0 although the required evidence was not earned
audit.counts        totals, or outcomes in junit.xml, that are not those of the results
audit.exit_code     another exit code than the results make
==================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.audit import cells, whole
from harness.audit.record import Damaged, Recorded, Said, read


@dataclass(frozen=True)
class AuditFinding:
    """One contradiction between what a run recorded and what it reports. ``cell``: an exact id, or empty."""

    check: str
    text: str
    cell: str = ""

    def __str__(self) -> str:
        return f"{self.check}: {f'{self.cell}: ' if self.cell else ''}{self.text}"


@dataclass(frozen=True)
class AuditReport:
    """What the audit says of a run. ``cells``: how many planned cells it looked at; 0 where it could read no plan."""

    cells: int = 0
    findings: tuple[AuditFinding, ...] = ()


def audit(directory: Path) -> AuditReport:
    """Audit the run in ``directory`` (its reports, ``process/plan.json`` and ``process/journal/``).

    Nothing is raised: what can't be read or understood is a finding.
    """
    try:
        recorded = read(directory)
    except Damaged as error:
        return AuditReport(0, (AuditFinding("audit.files", str(error)),))
    findings: list[AuditFinding] = []
    try:
        findings += (AuditFinding(*said) for said in _said(recorded))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        findings.append(AuditFinding("audit.files", f"not what this harness writes: {type(error).__name__}: {error}"))
    return AuditReport(len(recorded.cells), tuple(findings))


def _said(recorded: Recorded) -> Iterator[Said]:
    yield from recorded.said
    yield from cells.audit_results(recorded)
    yield from whole.audit_counts(recorded)
    yield from whole.audit_junit(recorded)
    yield from whole.audit_exit_code(recorded)
