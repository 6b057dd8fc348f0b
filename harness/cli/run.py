"""``runner.py --matrix FILE``: plan, run, reconcile, report."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.cli.baseline import BaselineTask, baseline_task, write_update
from harness.cli.errors import UsageError
from harness.cli.last_failed import last_failed
from harness.cli.option import Settings, parse
from harness.cli.output import console_for, progress_for, verbosity_of
from harness.cli.run_options import RUN_OPTIONS
from harness.cli.selecting import chosen_cells, planned
from harness.plan import Plan, render_plan
from harness.plan.baseline import with_baseline
from harness.report import print_summary
from harness.run import run_dir
from harness.run.environment import allowable_names, now, of_run, refusals, unknown_allowances
from harness.run.finish import INTERNAL_ERROR, finish_supervised, judged_require
from harness.run.journal import read_journal
from harness.run.order import expensive_first
from harness.run.plan_file import RunPlan, write_plan
from harness.run.reconcile import Reconciled
from harness.run.rounds import Interrupts
from harness.run.run_dir import RunDir, RunDirError, why_unwritable
from harness.run.supervise import Observer, Supervisor
from harness.run.worker_count import Placing, place_workers
from harness.types import Cell

# Options that pick cells so that the matrix's require can't be judged, by setting name.
PICKING = (("cells", "--cell"), ("last_failed", "--last-failed"), ("shard", "--shard"))
EPILOG = """\
commands: doctor (what this machine can run), selftest (seeded faults: is each caught?), report (show a
          run again), schema (JSON Schemas); each has its own --help

exit codes: 0 all as expected, 1 a cell is not as expected, 2 interrupted, 3 internal error,
            4 usage error or invalid matrix, 5 nothing ran
"""


def main(arguments: Sequence[str]) -> int:
    """Run a matrix; returns the exit code.

    Raises:
        UsageError, NothingToRun: nothing was run and nothing was written.
    """
    usage = "runner.py --matrix FILE [options]\n       runner.py COMMAND [options]"
    settings = parse(RUN_OPTIONS, arguments, os.environ, prog="runner.py", usage=usage, epilog=EPILOG)
    refuse_environment(settings["allow_env"])
    if not settings["matrix"]:
        raise UsageError("no matrix: runner.py --matrix FILE, for example --matrix ci.yaml; --help lists the options")
    plan = planned(settings)
    cells = chosen_cells(plan, settings, last_failed(plan, settings))
    task = baseline_task(plan, settings, complete=len(cells) == len(plan.cells))
    if task is not None and task.use is not None:
        plan = with_baseline(plan, task.use)
        by_id = {cell.id: cell for cell in plan.cells}
        cells = tuple(by_id[cell.id] for cell in cells)
    if settings["plan"]:
        print(plan_text(cells, settings, [*plan.notes, *(task.told if task else ())]))
        return 0
    return run(run_plan(plan, cells, settings, arguments, task), cells, settings, task)


def refuse_environment(allowed: Sequence[str]) -> None:
    """Raises UsageError for variables under which no measurement is possible, all of them at once."""
    unknown = unknown_allowances(allowed)
    if unknown:
        names = ", ".join(allowable_names())
        raise UsageError(f"--allow-env {unknown[0]}: not a variable that can be allowed; those are {names}")
    refused = refusals(os.environ, allowed)
    if refused:
        raise UsageError("\n       ".join(["this environment makes the run meaningless:", *map(str, refused)]))


def plan_text(cells: Sequence[Cell], settings: Settings, notes: Sequence[str] = ()) -> str:
    """The cells with the origin of their settings, the plan's notes, then the origin of the run's own."""
    own = [f"  {name:<12} {one.text}  <- {one.origin}" for name, one in settings.in_force().items() if name != "plan"]
    noted = [f"note: {note}" for note in notes]
    return "\n".join([render_plan(cells, verbose=settings["verbose"]), *noted, "", "this run:", *own])


def run_plan(
    plan: Plan, cells: Sequence[Cell], settings: Settings, arguments: Sequence[str], task: BaselineTask | None = None
) -> RunPlan:
    """What every process of the run needs to know. Cells stand in the plan's order, whatever the order of running."""
    ids = {cell.id for cell in cells}
    picked_by = [flag for name, flag in PICKING if settings[name]]
    require, notes = judged_require(plan.require, picked_by, len(ids), len(plan.cells))
    placing = placed(settings["workers"], len(cells))
    return RunPlan(
        run_id=run_dir.new_run_id(),
        matrix=plan.path,
        name=plan.name,
        require=require,
        cells=tuple(cell for cell in plan.cells if cell.id in ids),
        planned=len(plan.cells),
        timeout=settings["timeout"],
        isolate=settings["isolate"],
        maxfail=1 if settings["exitfirst"] else settings["maxfail"] or 0,
        overrides=tuple(f"--set={axis}={','.join(values)}" for axis, values in settings["overrides"]),
        workers=placing.workers,
        command=("python", "runner.py", *arguments),
        env=of_run(os.environ),
        started=now(),
        notes=(*notes, *plan.notes, *placing.warnings),
        baseline=task.use if task else None,
        gpus=placing.gpus,
    )


def placed(asked: int | str, cells: int) -> Placing:
    """The workers for so many cells, "auto" or as many as were asked for; warnings about them are printed."""
    placing = place_workers(None if isinstance(asked, str) else asked, cells, os.environ)
    for warning in placing.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return placing


def run(plan: RunPlan, cells: Sequence[Cell], settings: Settings, task: BaselineTask | None = None) -> int:
    """Run the cells, report, and return the exit code. ``cells`` are in the order of a shuffle, if one was asked for.

    Raises:
        UsageError: the report directory can't be used, or a case file can't be imported; nothing is left behind.
    """
    directory = _directory(plan, settings["report_dir"])
    is_shuffled = settings["shuffle"] is not None
    order = tuple(cell.id for cell in cells) if is_shuffled else expensive_first(cells)
    console, verbosity = console_for(settings["color"]), verbosity_of(settings)
    with Interrupts() as interrupts:
        supervisor = Supervisor(
            directory, plan, order, plan.workers, interactive=plan.workers == 0, interrupts=interrupts
        )
        with progress_for(console, len(cells), verbosity, interactive=supervisor.interactive) as progress:
            supervisor.observer = Observer(progress.started, progress.finished, progress.note)
            try:
                state = supervisor.complete()
            except OSError as error:
                return _unfinished(directory, error)
        unusable = supervisor.usage_error
        if unusable:
            run_dir.discard(directory)
            raise UsageError(unusable)
        return _report(supervisor, state, console, verbosity, task)


def _directory(plan: RunPlan, report_dir: str | None) -> RunDir:
    """The run's directory with the plan in it; raises UsageError and leaves nothing where that can't be written."""
    try:
        directory = run_dir.create(plan.run_id, report_dir)
    except RunDirError as error:
        raise UsageError(str(error)) from error
    try:
        write_plan(directory.plan, plan)
    except OSError as error:
        run_dir.discard(directory)
        raise UsageError(why_unwritable(directory.work.parent, error)) from error
    return directory


def _unfinished(directory: RunDir, error: OSError) -> int:
    """The machine failed under the run (disk full): what was recorded stays.

    Raises:
        UsageError: no cell had been started; nothing is left behind.
    """
    why = why_unwritable(directory.work.parent, error)
    with contextlib.suppress(OSError):
        if not any(read_journal(directory.journal).of_type("start")):
            run_dir.discard(directory)
            raise UsageError(f"{why}; no cell was run")
    print(f"error: the run could not go on: {why}; {_kept(directory)}", file=sys.stderr)
    return INTERNAL_ERROR


def _kept(directory: RunDir) -> str:
    return f"what was recorded is in {directory.work}; 'runner.py report' can read it"


def _report(
    supervisor: Supervisor, state: Reconciled, console: Console, verbosity: int, task: BaselineTask | None
) -> int:
    try:
        finished = finish_supervised(supervisor, state)
    except OSError as error:
        why = why_unwritable(supervisor.run.work.parent, error)
        print(f"error: the reports could not be written: {why}; {_kept(supervisor.run)}", file=sys.stderr)
        return INTERNAL_ERROR
    print_summary(console, finished.info, state.results, verbosity=verbosity, directory=finished.directory)
    for text in finished.warnings:
        print(f"warning: {text}", file=sys.stderr)
    if supervisor.stuck and supervisor.ends[-1].log:
        log = finished.directory / "process" / Path(supervisor.ends[-1].log).name
        print(f"pytest's own output: {log}", file=sys.stderr)
    updating = task if task is not None and task.updating else None
    if updating and not write_update(updating, finished.info, state.results, stopped=bool(state.left_out)):
        return INTERNAL_ERROR
    return finished.info.exit_code
