"""Reports: one file a format, all made from the same two things, a :class:`RunInfo` and the results in plan order.

    with Progress(console, total, verbosity=0) as progress:      # verbosity: -1 quiet, 0, 1 a line for every cell
        progress.started(cell_id, worker)                         # optional: names what runs in heartbeats
        progress.finished(result)                                 # each CellResult as it comes
        progress.note(text)                                       # anything else that the user should see now
    unmet = require_findings(require, results)                    # -> list[str]
    code, meaning = exit_code(results, unmet, interrupted=False, internal=False)  # for RunInfo.exit_code, exit_reason
    write_reports(directory, run, results)                        # every file, each written whole or not at all
    print_summary(console, run, results, verbosity=0, directory=directory)
    read_results(directory), read_run(directory), rerender(directory)

Nothing here imports torch.
"""

from __future__ import annotations

from harness.report.progress import Progress
from harness.report.render import rerender, write_reports
from harness.report.require import exit_code, require_findings
from harness.report.run_info import RunInfo, RunRecord, Totals, totals
from harness.report.store import StoreError, read_results, read_run
from harness.report.terminal import print_summary

__all__ = [
    "Progress",
    "RunInfo",
    "RunRecord",
    "StoreError",
    "Totals",
    "exit_code",
    "print_summary",
    "read_results",
    "read_run",
    "require_findings",
    "rerender",
    "totals",
    "write_reports",
]
