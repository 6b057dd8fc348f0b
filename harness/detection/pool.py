"""Jobs in processes of their own, where what one leaves behind, or dies of, is not the next one's."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Protocol, TypeVar

import torch

from harness.judge.calibrate_pool import start_process

TIMEOUT = 900.0  # seconds for one job: a cell takes seconds, so that nothing but a hang meets it
_STARTS_WITHIN = 60.0  # seconds more for the first job of a process, which imports torch
_ENDS_WITHIN = 10.0  # seconds for a process that has nothing left to do


class Outcome(Protocol):
    """What a job's function gives back. ``spoiled``: its process must not run another job."""

    @property
    def spoiled(self) -> bool: ...


J = TypeVar("J")
R = TypeVar("R", bound=Outcome)


class JobFailed(Exception):
    """A job's function raised; the message is its traceback."""


def isolated(
    function: Callable[[J], R],
    jobs: Sequence[J],
    workers: int,
    lost: Callable[[J, str], R],
    *,
    timeout: float = TIMEOUT,
) -> Iterator[R]:
    """Every job's outcome, as they finish, from at most ``workers`` processes.

    A process that dies, or is ended since its job took more than ``timeout`` seconds, costs its own job alone, whose
    outcome ``lost`` makes (job, why). Leaving the iterator, an interrupt for one, ends what runs and drops the rest.
    ``function``, jobs and outcomes must be picklable.

    Raises:
        JobFailed: ``function`` raised, or its outcome can't be pickled.
    """
    count = max(1, min(workers, len(jobs)))
    lanes = [_Lane(function, max(1, torch.get_num_threads() // count), timeout) for _ in range(count)]
    waiting = deque(jobs)
    try:
        for lane in lanes:
            _next(lane, waiting)
        while busy := [lane for lane in lanes if lane.is_busy]:
            _until_something_happens(busy)
            for lane in busy:
                for outcome in lane.ended(lost):
                    if outcome.spoiled:
                        lane.close()
                    _next(lane, waiting)
                    yield outcome
    finally:
        for lane in lanes:
            lane.close()


class _Lane(Generic[J, R]):
    """One process at a time, started when there is something to do, and the job that it has."""

    def __init__(self, function: Callable[[J], R], threads: int, timeout: float) -> None:
        self._function, self._threads, self._timeout = function, threads, timeout
        self._process: Any = None
        self._pipe: Connection[Any, Any] | None = None
        self._job: J | None = None
        self.deadline = 0.0

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    @property
    def signs(self) -> list[Any]:
        """What becomes ready when the process has answered, or is dead."""
        return [self._pipe, self._process.sentinel]

    def begin(self, job: J) -> None:
        self.deadline = time.monotonic() + self._timeout
        if self._process is None or not self._process.is_alive():
            self.close()  # it died after its last job, and not of this one
            self._start()
            self.deadline += _STARTS_WITHIN
        self._job = job
        with contextlib.suppress(OSError):  # it died meanwhile: its sentinel says so
            self._pipe.send(job)  # type: ignore[union-attr]

    def ended(self, lost: Callable[[J, str], R]) -> Iterator[R]:
        """The outcome of the job, once it has one.

        Raises:
            JobFailed: the job raised.
        """
        if self._job is None or self._pipe is None:
            return
        job = self._job
        try:
            if self._pipe.poll():
                is_outcome, what = self._pipe.recv()
                self._job = None
                if not is_outcome:
                    raise JobFailed(what)
                yield what
                return
            is_dead = not self._process.is_alive()
        except (EOFError, OSError):
            is_dead = True
        if is_dead:
            self._process.join(_ENDS_WITHIN)  # its end of the pipe is closed before its exit code is there
            why = f"the process died: exit code {self._process.exitcode}"
        elif time.monotonic() >= self.deadline:
            why = f"still running after {self._timeout:g} s, its process was ended"
        else:
            return
        self.close()
        yield lost(job, why)

    def close(self) -> None:
        """End the process: at once if it has a job, else as soon as it has seen that there is none."""
        process, pipe, busy = self._process, self._pipe, self.is_busy
        self._process = self._pipe = self._job = None
        if process is None or pipe is None:
            return
        pipe.close()
        if not busy:
            process.join(_ENDS_WITHIN)
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):  # not yet the leader of a group of its own
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
        process.join()
        process.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA and torch's threads don't survive a fork
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._function, self._threads, theirs))
        self._process.start()
        theirs.close()  # so that its end is seen as soon as the process is gone


def _serve(function: Callable[[Any], Any], threads: int, pipe: Connection[Any, Any]) -> None:
    """The process: job after job, until the parent closes its end or is gone."""
    with contextlib.suppress(OSError):
        os.setpgrp()  # what a job starts can be ended with it
    start_process(threads)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, function(job))
            pipe.send(answer)
        except BrokenPipeError:
            return
        except Exception:
            pipe.send((False, traceback.format_exc()))


def _next(lane: _Lane[J, R], waiting: deque[J]) -> None:
    if waiting:
        lane.begin(waiting.popleft())


def _until_something_happens(lanes: Sequence[_Lane[J, R]]) -> None:
    """Wait for an answer, a death, or the end of somebody's time."""
    left = min(lane.deadline for lane in lanes) - time.monotonic()
    wait([sign for lane in lanes for sign in lane.signs], timeout=max(left, 0.0))
