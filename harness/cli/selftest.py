"""``runner.py selftest``: each seeded fault must be caught, on this machine, by the check that it names."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence

from rich.console import Console

from harness.cli.errors import NothingToRun, UsageError
from harness.cli.option import Option, Settings, parse
from harness.cli.output import console_for, verbosity_of
from harness.cli.run import placed, refuse_environment
from harness.cli.run_options import HOW, RUN_OPTIONS, read_seconds
from harness.cli.started import front_words
from harness.faults.fault import lacking
from harness.plan import PlanError
from harness.report.page import Page
from harness.report.progress import is_ascii
from harness.run import run_dir
from harness.run.environment import now, of_run
from harness.run.finish import INTERNAL_ERROR
from harness.run.gpus import visible_gpus
from harness.run.plan_file import RunPlan, write_plan
from harness.run.run_dir import RunDir, RunDirError, why_unwritable
from harness.selftest.asked import write_asked
from harness.selftest.front_outcomes import CELL
from harness.selftest.outcome import Outcome, exit_code_of, outcome_of
from harness.selftest.plan import Seeded, Selftest, plan_selftest
from harness.selftest.render import as_json, plan_lines, put_end, put_outcomes
from harness.selftest.run import Ran, run_selftest

DEFAULT_FILE = "selftest.yaml"
# One fault hangs, and holds a worker for as long; an ordinary cell takes seconds (the slowest 9 on two idle cores).
TIMEOUT = 60.0
_SHARED = ("plan", "workers", "report_dir", "allow_env", "quiet", "verbose", "color")
WHICH = "which faults"


def _shared(option: Option) -> Option:
    """An option of a run as it reads here."""
    if option.name == "plan":
        return dataclasses.replace(option, help="show which fault runs in which cell, by which check", group=WHICH)
    if option.name == "report_dir":
        return dataclasses.replace(option, help="where the reports go (default: reports/selftest-<run-id>)")
    return option


OPTIONS = (
    Option(
        "matrix",
        ("--matrix",),
        "selftest file, looked up as a matrix is",
        default=DEFAULT_FILE,
        metavar="FILE",
        once=True,
        group=WHICH,
    ),
    Option(
        "faults",
        ("--fault",),
        "this fault only: a registered name, or package.module:FAULT; repeatable",
        metavar="NAME",
        repeat=True,
        group=WHICH,
    ),
    Option("timeout", ("--timeout",), "time limit of one cell", read_seconds, TIMEOUT, metavar="SECONDS", group=HOW),
    Option("no_skips", ("--no-skips",), "exit code 1 if this machine can't show every fault", switch=True, group=HOW),
    *(_shared(option) for option in RUN_OPTIONS if option.name in _SHARED),
)
DESCRIPTION = """\
Runs every seeded fault in the cell where it must show, and the same cell without it. Prints each that was not caught:
the fault, the check that must catch it, the time, the cell, the reason, the command that runs it again. -v: a line for
each of the others too; -q: no more than a line for each.
"""
EPILOG = """\
exit codes: 0 each fault that this machine can show is caught by the check it names, and each cell without its fault
            is green; 1 not so; 2 interrupted; 3 internal error; 4 usage error; 5 every fault was skipped
"""


def main(arguments: Sequence[str]) -> int:
    """Run the selftest; returns the exit code.

    Raises:
        UsageError: an unknown option or fault, or everything that is wrong with the file.
        NothingToRun: no fault can be shown on this machine.
    """
    settings = parse(OPTIONS, arguments, os.environ, prog="runner.py selftest", description=DESCRIPTION, epilog=EPILOG)
    refuse_environment(settings["allow_env"])
    selftest = _planned(settings)
    lacks = {one.cell.id: why for one in selftest.seeded if (why := _lacking(one))}
    chosen = dataclasses.replace(selftest, seeded=tuple(one for one in selftest.seeded if one.cell.id not in lacks))
    console = console_for(settings["color"])
    if settings["plan"]:
        page = Page(console.width, ascii_only=is_ascii(console))
        plan_lines(page, [(one.fault, one.caught_by, one.cell.id) for one in selftest.seeded])
        plan_lines(page, [(one.name, one.caught_by, CELL) for one in selftest.front])
        _print(console, page)
        return 0
    if not chosen.seeded and not chosen.front and not settings["no_skips"]:
        raise NothingToRun(f"no fault can be shown here: {', '.join(sorted(set(lacks.values())))}")
    return _run_and_tell(selftest, chosen, lacks, settings, arguments, console)


def _planned(settings: Settings) -> Selftest:
    # A fault of the user's own, as in workers: they are started with "python -m", which looks there too.
    sys.path.append(os.getcwd())
    try:
        return plan_selftest(settings["matrix"], settings["faults"])
    except PlanError as error:
        raise UsageError(str(error)) from error


def _lacking(seeded: Seeded) -> str:
    """Why this machine can't show the fault; empty where it can."""
    return lacking(seeded.needs, has_gpu=bool(visible_gpus(os.environ)))


def _run_and_tell(
    selftest: Selftest,
    chosen: Selftest,
    lacks: Mapping[str, str],
    settings: Settings,
    arguments: Sequence[str],
    console: Console,
) -> int:
    began = time.monotonic()
    plan = _run_plan(chosen, settings, arguments)
    directory = _directory(plan, settings["report_dir"] or f"{run_dir.DEFAULT_ROOT}/selftest-{plan.run_id}")
    verbosity = verbosity_of(settings)

    def answer(ran: Ran) -> str:
        outcomes, code, meaning = _answer(ran, selftest, lacks, settings)
        seconds = round(time.monotonic() - began, 1)
        facts = {"selftest": selftest.path, "exit_code": code, "exit_reason": meaning, "seconds": seconds}
        return as_json(outcomes, facts)

    try:
        write_asked(directory, selftest, lacks)
        ran = run_selftest(plan, directory, chosen, console, min(verbosity, 0), answer)
    except OSError as error:
        why = why_unwritable(directory.work.parent, error)
        print(f"error: the selftest could not be written: {why}", file=sys.stderr)
        return INTERNAL_ERROR
    outcomes, code, meaning = _answer(ran, selftest, lacks, settings)
    seconds = time.monotonic() - began
    page = Page(console.width, ascii_only=is_ascii(console))
    put_outcomes(page, outcomes, verbosity=verbosity, again=lambda one: _again(one, settings))
    put_end(page, outcomes, seconds, code, meaning, str(ran.directory))
    _print(console, page)
    return code


def _answer(
    ran: Ran, selftest: Selftest, lacks: Mapping[str, str], settings: Settings
) -> tuple[list[Outcome], int, str]:
    """What became of each fault, the exit code and its meaning."""
    outcomes = [outcome_of(one, ran.results, lacks.get(one.cell.id, "")) for one in selftest.seeded]
    outcomes += ran.front
    code, meaning = exit_code_of(
        outcomes, interrupted=ran.interrupted, internal=bool(ran.problems), no_skips=settings["no_skips"]
    )
    return outcomes, code, f"{meaning}: {ran.problems[0]}" if ran.problems else meaning


def _again(outcome: Outcome, settings: Settings) -> Sequence[str]:
    """The command that runs one fault again from here, where a debugger sees it."""
    words = [*front_words(), "selftest", "--fault", outcome.fault, "-n", "0"]
    words += [] if settings["matrix"] == DEFAULT_FILE else ["--matrix", settings["matrix"]]
    words += [] if settings["timeout"] == TIMEOUT else ["--timeout", f"{settings['timeout']:g}"]
    return [*words, *(word for name in settings["allow_env"] for word in ("--allow-env", name))]


def _run_plan(selftest: Selftest, settings: Settings, arguments: Sequence[str]) -> RunPlan:
    cells = selftest.cells
    placing = placed(settings["workers"], len(cells))
    return RunPlan(
        run_id=run_dir.new_run_id(),
        matrix=selftest.path,
        name="selftest",
        require="traced",
        cells=cells,
        planned=len(cells),
        timeout=settings["timeout"],
        workers=placing.workers,
        command=("python", "runner.py", "selftest", *arguments),
        env=of_run(os.environ),
        started=now(),
        notes=("seeded faults: reds are wanted; selftest.json says which were",),
        gpus=placing.gpus,
    )


def _directory(plan: RunPlan, report_dir: str) -> RunDir:
    try:
        directory = run_dir.create(plan.run_id, report_dir)
        write_plan(directory.plan, plan)
    except RunDirError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(why_unwritable(directory.work.parent, error)) from error
    return directory


def _print(console: Console, page: Page) -> None:
    for line in page.lines:
        console.print(line, soft_wrap=True)
