"""``--baseline FILE`` and ``--update-baseline``: what a run is held against, and what it leaves for later ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.baseline import BaselineUse, Environment
from harness.cli.errors import UsageError
from harness.cli.option import Settings
from harness.plan import Plan, PlanError
from harness.plan.baseline import baseline_text, baseline_use, read_baseline
from harness.report import RunInfo
from harness.report.baseline import Update, many, named, update
from harness.report.store import write_text_atomically
from harness.run.here import UnknownMachine, this_machine
from harness.run.run_dir import why_unwritable
from harness.types import CellResult

DIRECTORY = "baselines"  # beside the matrix file


@dataclass(frozen=True)
class BaselineTask:
    """What one run was asked about baselines. ``use`` is None where an update finds no file yet."""

    file: Path
    here: Environment
    use: BaselineUse | None
    updating: bool
    complete: bool

    @property
    def told(self) -> list[str]:
        """For ``--plan``: what the limits are worth."""
        if self.use is None:
            return []
        baseline = self.use.baseline
        gone = f", {len(self.use.gone)} of them not in the plan" if self.use.gone else ""
        return [f"baseline {self.file}: {many(len(baseline.cells))}{gone}, measured on {baseline.environment}"]


def baseline_task(plan: Plan, settings: Settings, *, complete: bool) -> BaselineTask | None:
    """None when neither option was given. ``plan`` is the full one, ``complete`` whether all of it was selected.

    With ``--plan`` nothing is run, and so no machine is asked: the baseline is shown wherever it was measured.

    Raises:
        UsageError: options that contradict each other, or a baseline that can't be read, written or compared here.
    """
    given, updating = settings["baseline"], settings["update_baseline"]
    if not given and not updating:
        return None
    if updating:
        _refuse_update(settings)
    try:
        if settings["plan"]:
            return _to_be_shown(plan, Path(given), complete) if given else None
        here = this_machine()
        path = Path(given) if given else default_file(plan, here)
        found = None if updating and not path.exists() else read_baseline(path)
        use = baseline_use(found, str(path), plan, here, _why_gone_is_no_red(settings, complete)) if found else None
    except PlanError as error:
        raise UsageError(str(error)) from error
    except UnknownMachine as error:
        raise UsageError(f"what a baseline is compared with can't be found out: {error}") from error
    if updating:
        _refuse_unwritable(path)
    return BaselineTask(path, here, use, updating, complete)


def default_file(plan: Plan, here: Environment) -> Path:
    """Where ``--update-baseline`` writes when no file is named: ``baselines/MATRIX.ARCH.json`` beside the matrix."""
    return Path(plan.path).parent / DIRECTORY / f"{plan.name}.{here.arch}.json"


def _to_be_shown(plan: Plan, path: Path, complete: bool) -> BaselineTask:
    found = read_baseline(path)
    here = found.baseline.environment
    return BaselineTask(path, here, baseline_use(found, str(path), plan, here), updating=False, complete=complete)


def _why_gone_is_no_red(settings: Settings, complete: bool) -> str:
    if settings["update_baseline"] and complete:
        return "the update takes them out"
    return "--set makes another plan" if settings["overrides"] else ""


def _refuse_update(settings: Settings) -> None:
    if settings["overrides"]:
        raise UsageError("--update-baseline with --set: a baseline is one of the matrix as it is written")
    if settings["allow_env"]:
        allowed = ", ".join(settings["allow_env"])
        raise UsageError(f"--update-baseline with --allow-env {allowed}: the counts that it shifts are no measure")


def _refuse_unwritable(path: Path) -> None:
    """Before anything runs: a night's measurements shall not be lost at its end."""
    parent = next(one for one in path.absolute().parents if one.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"--update-baseline: {path} can't be written: no permission in {parent}")


def write_update(task: BaselineTask, info: RunInfo, results: Sequence[CellResult], *, stopped: bool) -> bool:
    """Update the file after a finished run, and say what became of every kind of cell. False: it could not be done.

    ``stopped``: -x or --maxfail left cells out. A run that didn't come to its end changes nothing.
    """
    if stopped or info.exit_code not in (0, 1):
        why = "stopped by -x/--maxfail" if stopped else info.exit_reason
        print(f"baseline {task.file}: not updated, nothing in it was changed: the run did not come to its end ({why})")
        return True
    done = update(info.name, task.here, task.use, info.baseline, results, complete=task.complete)
    if not done.written:
        print(f"baseline {task.file}: not updated: no cell of this run is as expected and no worse than before")
        return True
    try:
        _refuse_changed(task)
        task.file.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(task.file, [baseline_text(done.baseline)])
    except (OSError, PlanError) as error:
        why = why_unwritable(task.file, error) if isinstance(error, OSError) else str(error)
        print(f"error: the baseline was not updated: {why}", file=sys.stderr)
        return False
    print("\n  ".join([f"baseline {task.file}: {many(len(done.baseline.cells))}", *_told(done)]))
    return True


def _refuse_changed(task: BaselineTask) -> None:
    """Raises PlanError when somebody else wrote the file while the run went on: theirs would be lost."""
    now = read_baseline(task.file).baseline if task.file.exists() else None
    if now != (task.use.baseline if task.use else None):
        raise PlanError(f"{task.file} was written by somebody else while this run went on; run it again")


def _told(done: Update) -> Iterator[str]:
    if done.same:
        yield f"{many(len(done.same))} measured again, the same"
    for ids, what in (
        (done.changed, "changed"),
        (done.added, "new"),
        (done.removed, "taken out: the plan no longer has them"),
        (done.kept_red, "kept as they were: not as expected in this run"),
        (done.kept_worse, "kept as they were: worse than that in this run; to accept it, take out the line and update"),
        (done.left_out, "not in it: not as expected, and never were"),
    ):
        if ids:
            yield f"{many(len(ids))} {what}: {named(ids)}"
    if done.kept_unselected:
        yield f"{many(len(done.kept_unselected))} kept as they were: this run did not select them"
