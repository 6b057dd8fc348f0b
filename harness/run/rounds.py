"""One start of pytest as a child process: its command, its environment, and watching it until it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import harness
from harness.run.cell_process import PREPARE_SECONDS
from harness.run.environment import child_defaults
from harness.run.journal import JournalTail, Record
from harness.run.plan_file import MATRIX_COPY, Round, RunPlan, write_round
from harness.run.run_dir import RunDir

POLL_SECONDS = 0.1
# A cell ends itself after its time-out. If nothing at all was recorded for that long and this much more, the process
# can't even do that (stopped, or stuck in the kernel), or pytest-xdist waits for a worker that is gone.
STALL_GRACE = 60.0
# What workers get to finish their cell when the pytest that commands them was killed.
ORPHAN_GRACE = 5.0
KILL_GRACE = 2.0
Watch = Callable[[Record], None]


@dataclass(frozen=True)
class RoundEnd:
    """How a round ended. ``status`` is pytest's exit code, negative for the signal that killed it; None: not known.

    ``stalled``: nothing happened for too long, and the front killed it. ``stopped``: the user interrupted.
    """

    entry: Round
    workers: int
    status: int | None
    stalled: bool = False
    stopped: bool = False
    log: str = ""

    def __str__(self) -> str:
        if self.stalled:
            return f"round {self.entry.number} recorded nothing for too long and was killed"
        ending = "was killed by signal" if (self.status or 0) < 0 else "ended with exit code"
        return f"pytest {ending} {abs(self.status or 0)} in round {self.entry.number}"


@dataclass
class Interrupts:
    """SIGINT and SIGTERM as a flag while rounds run: the front has to end children and write reports before it goes.

    The first signal sets the flag; the next one does what it would have done without this. While a debugger has the
    terminal (``paused``), Ctrl-C is the debugger's.
    """

    seen: bool = False
    paused: bool = False
    _old: dict[int, object] = field(default_factory=dict)

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: object) -> None:
        if self.paused and number == signal.SIGINT:
            return
        self.seen = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned
        self._old.clear()


def command(run: RunDir, entry: Round, *, workers: int, maxfail: int) -> list[str]:
    """The pytest command of a round. It reads no configuration of the user's: the front's options are all there are."""
    matrix = run.plan.with_name(MATRIX_COPY)
    words = [sys.executable, "-m", "pytest", str(matrix), "--harness-round", str(run.round_file(entry.number))]
    words += ["-p", "harness.run.plugin", "-p", "no:fp8_harness"]
    # What a cell's process does shall depend on the cell: no capturing of warnings, logs or output around it.
    for name in ("cacheprovider", "faulthandler", "warnings", "logging"):
        words += ["-p", f"no:{name}"]
    words += ["-c", str(_configuration(run)), "--rootdir", os.getcwd(), "--noconftest", "--capture=no", "-v"]
    if maxfail:
        words += ["--maxfail", str(maxfail)]
    if workers:
        # maxschedchunk 1: a worker that gets one long cell shall not sit on a queue of others.
        words += ["-p", "xdist", "-n", str(workers), "--dist", "load", "--maxschedchunk", "1"]
    return words


def _configuration(run: RunDir) -> Path:
    path = run.process / "pytest.ini"
    if not path.exists():
        path.write_text("[pytest]\njunit_family = xunit1\n", encoding="utf-8")
    return path


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a round: the user's, without what would change pytest behind the front's back."""
    own = {**env, **child_defaults(env), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    own.pop("PYTEST_ADDOPTS", None)
    root = str(Path(harness.__file__).resolve().parents[1])
    own["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [env.get("PYTHONPATH", "")])])
    return own


def run_round(
    run: RunDir,
    plan: RunPlan,
    entry: Round,
    *,
    workers: int,
    maxfail: int = 0,
    interactive: bool = False,
    watch: Watch,
    interrupts: Interrupts,
) -> RoundEnd:
    """Start pytest for ``entry``, hand every new journal line to ``watch``, and return when all its processes are gone.

    Args:
        workers: worker processes; 0 runs the cells in the pytest process itself.
        maxfail: pytest's --maxfail for this round, 0 for none.
        interactive: leave it the terminal, for a debugger.

    Raises:
        OSError: pytest can't be started or the run's directory can't be written.
    """
    write_round(run.round_file(entry.number), entry)
    log = run.process / f"pytest-{entry.number}.log"
    with contextlib.ExitStack() as stack:
        output = None if interactive else stack.enter_context(open(log, "wb"))
        process = subprocess.Popen(
            command(run, entry, workers=workers, maxfail=maxfail),
            env=environment(os.environ),
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # A group of its own: Ctrl-C reaches only the front, which then ends the whole group.
            start_new_session=not interactive,
        )
        watching = _Watching(run, plan, process, interactive=interactive, watch=watch, interrupts=interrupts)
        try:
            stalled = watching.until_gone()
        finally:
            interrupts.paused = False
            watching.end_all(grace=ORPHAN_GRACE if workers and (process.returncode or 0) < 0 else 0.0)
    stopped = watching.stopped or interrupts.seen
    return RoundEnd(entry, workers, process.returncode, stalled, stopped, "" if interactive else str(log))


class _Watching:
    """The loop that waits for one round."""

    def __init__(
        self,
        run: RunDir,
        plan: RunPlan,
        process: subprocess.Popen[bytes],
        *,
        interactive: bool,
        watch: Watch,
        interrupts: Interrupts,
    ) -> None:
        self.stopped = False
        self._tail = JournalTail(run.journal)
        self._tail.poll()  # earlier rounds were watched already
        self._timeout = plan.timeout
        self._process = process
        self._interactive = interactive
        self._watch = watch
        self._interrupts = interrupts
        self._limit = PREPARE_SECONDS + plan.timeout + STALL_GRACE
        self._heard = time.monotonic()

    def until_gone(self) -> bool:
        """Wait for the pytest process; True when it had to be killed because nothing happened any more."""
        while True:
            gone = self._process.poll() is not None
            self._listen()
            if gone:
                return False
            if self._interrupts.seen:
                self._kill()
                return False
            if not self._interrupts.paused and time.monotonic() - self._heard > self._limit:
                self._kill()
                return True
            time.sleep(POLL_SECONDS)

    def end_all(self, grace: float) -> None:
        """End what is left of the group: workers of a killed pytest, processes that a cell left behind."""
        self._wait_for_group(grace)
        self._kill()
        self._wait_for_group(KILL_GRACE)  # what is dying may still hold GPU memory that the next round needs
        self._listen()

    def _wait_for_group(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._interactive and time.monotonic() < deadline and _group_exists(self._process.pid):
            time.sleep(POLL_SECONDS)

    def _kill(self) -> None:
        if self._interactive:
            if self._process.poll() is None:
                self._process.kill()
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listen(self) -> None:
        for record in self._tail.poll():
            self._heard = time.monotonic()
            if record.type in ("host", "start"):
                self._limit = self._timeout + STALL_GRACE
            self._interrupts.paused = self._interrupts.paused or record.type == "paused"
            self.stopped = self.stopped or record.type == "stopped"
            self._watch(record)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
