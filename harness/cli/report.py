"""``runner.py report``: a stored run again, or what a killed run left behind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.cli.errors import UsageError
from harness.cli.option import Option, parse
from harness.cli.output import console_for, verbosity_of
from harness.cli.run_options import RUN_OPTIONS
from harness.report import StoreError, print_summary, rerender
from harness.report.store import write_text_atomically
from harness.run import run_dir
from harness.run.finish import finish
from harness.run.journal import read_journal
from harness.run.plan_file import Round, RunPlan, read_plan
from harness.run.reconcile import SELFTEST, Reconciled
from harness.run.rounds import RoundEnd
from harness.run.run_dir import DEFAULT_ROOT, LATEST, RunDir, RunDirError, why_unwritable
from harness.run.supervise import Supervisor
from harness.selftest.asked import outcomes_after, path_in
from harness.selftest.outcome import exit_code_of
from harness.selftest.render import FILE, as_json

OPTIONS = (
    Option("directory", ("directory",), f"a report directory (default: {DEFAULT_ROOT}/{LATEST})", metavar="DIR"),
    *(option for option in RUN_OPTIONS if option.name in ("quiet", "verbose", "color")),
)
DESCRIPTION = """\
Shows a stored run again and makes its junit.xml, report.html and Markdown files anew.
Given a directory that a killed run left behind (reports/.<run-id>.partial), it reports what was recorded.
The exit code is that of the run.
"""


def main(arguments: Sequence[str]) -> int:
    """Show a run; returns the run's own exit code.

    Raises:
        UsageError: there is no run, or its files are damaged.
    """
    settings = parse(OPTIONS, arguments, os.environ, prog="runner.py report", description=DESCRIPTION)
    directory = Path(settings["directory"] or Path(DEFAULT_ROOT) / LATEST)
    console, verbosity = console_for(settings["color"]), verbosity_of(settings)
    try:
        if (directory / "run.json").exists() or not RunDir(directory, directory).plan.exists():
            info, results = rerender(directory)
            print_summary(console, info, results, verbosity=verbosity, directory=directory)
            return info.exit_code
        return recover(directory, console, verbosity)
    except OSError as error:
        raise UsageError(why_unwritable(directory, error)) from error
    except (StoreError, RunDirError, ValueError) as error:
        raise UsageError(str(error)) from error


def recover(work: Path, console: Console, verbosity: int) -> int:
    """Reconcile and report a run whose front was killed: what was recorded counts, the rest was not run.

    Raises:
        RunDirError: the run is still in progress.
        OSError, ValueError: its files can't be read or written.
    """
    run = run_dir.reopen(work)
    plan = read_plan(run.plan)
    numbers = sorted({record.round for record in read_journal(run.journal).records})
    ends = [RoundEnd(Round(number, ()), plan.workers, None, stopped=True) for number in numbers]
    state = Supervisor(run, plan, (), plan.workers, ends=ends).reconciled()
    finished = finish(
        run,
        plan,
        state,
        rounds=len(numbers),
        interrupted=True,
        last=lambda info: _answer_selftest(run, plan, state, info.seconds),
    )
    print_summary(console, finished.info, state.results, verbosity=verbosity, directory=finished.directory)
    return finished.info.exit_code


def _answer_selftest(run: RunDir, plan: RunPlan, state: Reconciled, seconds: float) -> None:
    """Of a selftest that was killed: its answer, as far as what was recorded gives one."""
    if plan.command[: len(SELFTEST)] != SELFTEST or not path_in(run).is_file():
        return
    file, outcomes = outcomes_after(run, plan, {result.id: result for result in state.results})
    code, meaning = exit_code_of(outcomes, interrupted=True)
    facts = {"selftest": file, "exit_code": code, "exit_reason": f"{meaning}: it was killed", "seconds": seconds}
    write_text_atomically(run.work / FILE, [as_json(outcomes, facts)])
