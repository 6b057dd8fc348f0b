"""Commands that reports tell the user to run, as lists of words; each format quotes them its own way."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.report.groups import Group
from harness.report.run_info import RunInfo
from harness.types import CellResult, Verdict


def repro_words(run: RunInfo, result: CellResult) -> list[str]:
    """The command that runs this one cell in a debugger's reach."""
    if result.repro:
        try:
            return shlex.split(result.repro)
        except ValueError:  # not a shell command after all: shown as it is
            return [result.repro]
    return ["python", "runner.py", "--matrix", run.matrix, "--cell", result.id, "-n", "0"]


def next_command(run: RunInfo, groups: Sequence[Group]) -> list[str]:
    """What to run next; empty when all is as expected.

    A red cell: that cell alone, or one that is worse than the baseline. The machine failed, or the run was cut off: the
    same command again. Evidence missing, cells gone or nothing ran: the plan, which says what each cell would be.
    """
    gating = [group for group in groups if group.gates]
    if run.exit_code == 0:
        return []
    if run.exit_code in (2, 3) or (gating and all(set(group.verdicts) == {Verdict.INFRA.value} for group in gating)):
        return list(run.command)
    if gating:
        return repro_words(run, gating[0].representative)
    worse = [finding for finding in run.baseline.findings if finding.check != "baseline.gone"] if run.baseline else []
    if run.baseline and worse and worse[0].ids:
        words = ["--baseline", run.baseline.file, "--cell", worse[0].ids[0], "-n", "0"]
        return ["python", "runner.py", "--matrix", run.matrix, *words]
    return ["python", "runner.py", "--matrix", run.matrix, "--plan"]
