"""The directory of one run: made under a temporary name, renamed when every report is in it.

reports/.20260131-101500-4f2a.partial/    while it runs, and for ever if it was killed
reports/20260131-101500-4f2a/             when it is done
reports/latest -> 20260131-101500-4f2a

Reports stand at the top; everything that processes left on the way is under ``process/``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from harness.run.journal import Process

DEFAULT_ROOT = "reports"
LATEST = "latest"
# A directory that holds one of these is a report of ours, which a later run with the same --report-dir may replace.
_OWN_FILES = ("run.json", "process/plan.json")


class RunDirError(Exception):
    """The report directory can't be used; the message says why and is meant for the user."""


def new_run_id() -> str:
    """Local time to the second and four random hex digits: sorts by time, and two runs at once don't meet."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class RunDir:
    """Paths of one run. ``work`` is where everything is written; ``final`` where it will stand."""

    work: Path
    final: Path
    link: Path | None = None  # reports/latest, when the place is the default one

    @property
    def process(self) -> Path:
        return self.work / "process"

    @property
    def journal(self) -> Path:
        return self.process / "journal"

    @property
    def stacks(self) -> Path:
        return self.process / "stacks"

    @property
    def logs(self) -> Path:
        return self.process / "logs"

    @property
    def rounds(self) -> Path:
        return self.process / "rounds"

    @property
    def plan(self) -> Path:
        return self.process / "plan.json"

    def round_file(self, number: int) -> Path:
        return self.rounds / f"{number}.json"

    def stack_file(self, process: Process) -> Path:
        return self.stacks / f"{process.stem}.txt"

    def log_file(self, process: Process) -> Path:
        return self.logs / f"{process.stem}.log"


def of_round_file(path: Path) -> RunDir:
    """The directory that a round file belongs to, for processes that were given only that."""
    work = path.resolve().parents[2]
    return RunDir(work, work)


def create(run_id: str, report_dir: str | None) -> RunDir:
    """Make the directories of a run.

    Args:
        report_dir: where the report shall stand (``--report-dir``); None for ``reports/<run_id>``.

    Raises:
        RunDirError: not writable, or it holds something that is not a report.
    """
    final = Path(report_dir) if report_dir else Path(DEFAULT_ROOT) / run_id
    link = None if report_dir else final.parent / LATEST
    work = final.parent / (f".{run_id}.partial" if not report_dir else f".{final.name}.{run_id}.partial")
    run = RunDir(work.absolute(), final.absolute(), link.absolute() if link else None)
    try:
        if final.is_dir() and any(final.iterdir()) and not any((final / name).is_file() for name in _OWN_FILES):
            raise RunDirError(f"{final}: is not empty and not a report of an earlier run: not touched")
        if final.exists() and not final.is_dir():
            raise RunDirError(f"{final}: is not a directory")
        for path in (run.journal, run.stacks, run.logs, run.rounds):
            path.mkdir(parents=True)
        _hold(run.work)
    except OSError as error:
        discard(run)
        raise RunDirError(f"{final}: can't write a report there: {error.strerror or error}") from error
    return run


def _hold(work: Path) -> None:
    """Lock the run's directory as long as this process lives: a run in progress is not one that was killed."""
    descriptor = os.open(work / "process" / "lock", os.O_WRONLY | os.O_CREAT, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def reopen(work: Path) -> RunDir:
    """The directory of a run that was killed, to reconcile and report what it recorded.

    Raises:
        RunDirError: no such run, or it is still in progress.
    """
    run = RunDir(work, work)
    if not run.plan.is_file() or not run.journal.is_dir():
        raise RunDirError(f"{work}: holds no run")
    try:
        _hold(work)
    except BlockingIOError as error:
        raise RunDirError(f"{work}: this run is still in progress") from error
    except OSError as error:
        raise RunDirError(f"{work}: {error.strerror or error}") from error
    return RunDir(work.absolute(), work.absolute().with_name(final_name(work.name)))


def final_name(work_name: str) -> str:
    """``out`` for ``.out.<run-id>.partial``, ``<run-id>`` for ``.<run-id>.partial``."""
    name = work_name.removeprefix(".").removesuffix(".partial")
    head, _, tail = name.rpartition(".")
    return head or tail


def shown(path: Path) -> Path:
    """``path`` as messages write it: relative where it lies below the working directory."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def why_unwritable(directory: Path, error: OSError) -> str:
    """``error`` as a message that names the directory: that of a write to a full disk names no file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{directory}: the disk is full"
    return f"{directory}: {error}"


def discard(run: RunDir) -> None:
    """Remove everything that was written: nothing was run."""
    shutil.rmtree(run.work, ignore_errors=True)


def publish(run: RunDir) -> list[str]:
    """Give the finished directory its final name and let ``latest`` point to it; returns warnings.

    Raises:
        OSError: it can't be renamed; everything stays under the temporary name.
    """
    for folder in (run.stacks, run.logs):
        _remove_empty(folder)
    (run.work / "process" / "lock").unlink(missing_ok=True)
    while True:
        # A rename can't replace a directory that holds something: an old report steps aside first. Another run with the
        # same --report-dir may publish in between: then its report is the old one.
        if run.final.is_dir():
            aside = run.final.with_name(f".{run.final.name}.{secrets.token_hex(4)}.old")
            os.rename(run.final, aside)
            shutil.rmtree(aside, ignore_errors=True)
        try:
            os.rename(run.work, run.final)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                continue
            raise
        return _point_latest(run.link, run.final.name) if run.link else []


def _remove_empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_size == 0:
            path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _point_latest(link: Path, target: str) -> list[str]:
    temporary = link.with_name(f".{LATEST}.{secrets.token_hex(4)}")
    try:
        os.symlink(target, temporary, target_is_directory=True)
        os.replace(temporary, link)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        return [f"{link} could not be updated: {error.strerror or error}"]
    return []
