"""A run and its results, with what every format asks of them worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.report.baseline import told
from harness.report.groups import Group, group_reds
from harness.report.require import MEANINGS, only_quarantined, require_findings
from harness.report.run_info import RunInfo, Totals, totals
from harness.report.table import Table, build_tables
from harness.types import CellResult


@dataclass(frozen=True)
class View:
    """What a renderer is given. ``results`` are in plan order."""

    run: RunInfo
    results: Sequence[CellResult]

    @cached_property
    def groups(self) -> list[Group]:
        return group_reds(self.results)

    @cached_property
    def tables(self) -> list[Table]:
        return build_tables(self.results)

    @cached_property
    def totals(self) -> Totals:
        return totals(self.results)

    @cached_property
    def unmet(self) -> list[str]:
        """What is missing for the required evidence."""
        return require_findings(self.run.require, self.results)

    @cached_property
    def only_quarantined(self) -> list[str]:
        """Recipes for which a quarantine alone keeps that from deciding the exit code."""
        return only_quarantined(self.run.require, self.results)

    @cached_property
    def worse(self) -> list[str]:
        """What is worse than the baseline, as far as no cell is red for it."""
        return [str(finding) for finding in self.run.baseline.findings] if self.run.baseline else []

    @cached_property
    def beside_baseline(self) -> list[str]:
        """What else a baseline says, none of it red: another environment, what is better, what it doesn't know."""
        return told(self.run.baseline, self.run.matrix) if self.run.baseline else []

    @cached_property
    def audited(self) -> list[str]:
        """What the audit found: contradictions between what was recorded and what is reported."""
        return [str(finding) for finding in self.run.audit.findings] if self.run.audit else []

    @property
    def name(self) -> str:
        return self.run.name or self.run.matrix

    @property
    def meaning(self) -> str:
        """The exit code in words."""
        return self.run.exit_reason or MEANINGS.get(self.run.exit_code, "")
