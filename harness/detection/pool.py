"""Jobs in processes of their own, where what one leaves behind, or dies of, is not the next one's."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, Protocol, TypeVar

import torch

from harness.judge.calibrate_pool import start_process


class Outcome(Protocol):
    """What a job's function gives back. ``spoiled``: its process must not run another job."""

    @property
    def spoiled(self) -> bool: ...


J = TypeVar("J")
R = TypeVar("R", bound=Outcome)


def isolated(function: Callable[[J], R], jobs: Sequence[J], workers: int, lost: Callable[[J, str], R]) -> Iterator[R]:
    """Every job's outcome, as they finish, from at most ``workers`` processes.

    A process that dies costs its own job alone, whose outcome ``lost`` makes (job, why). Leaving the iterator, an
    interrupt for one, drops the jobs that haven't begun. ``function``, jobs and outcomes must be picklable.
    """
    count = max(1, min(workers, len(jobs)))
    lanes = [_Lane(function, max(1, torch.get_num_threads() // count)) for _ in range(count)]
    waiting, running = deque(jobs), dict[Future[R], tuple[_Lane[J, R], J]]()
    try:
        for lane in lanes:
            _next(lane, waiting, running)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                lane, job = running.pop(future)
                outcome = _outcome(future, job, lost)
                if outcome.spoiled:
                    lane.close()
                _next(lane, waiting, running)
                yield outcome
    finally:
        for lane in lanes:
            lane.close()


class _Lane(Generic[J, R]):
    """One process at a time, started when there is something to do."""

    def __init__(self, function: Callable[[J], R], threads: int) -> None:
        self._function, self._threads = function, threads
        self._process: ProcessPoolExecutor | None = None

    def submit(self, job: J) -> Future[R]:
        if self._process is None:
            self._process = ProcessPoolExecutor(
                1,
                mp_context=multiprocessing.get_context("spawn"),  # CUDA and torch's threads don't survive a fork
                initializer=start_process,
                initargs=(self._threads,),
            )
        try:
            return self._process.submit(self._function, job)
        except BrokenProcessPool:  # it died after its last job, and not of this one
            self.close()
            return self.submit(job)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.shutdown(wait=True, cancel_futures=True)


def _next(lane: _Lane[J, R], waiting: deque[J], running: dict[Future[R], tuple[_Lane[J, R], J]]) -> None:
    if waiting:
        job = waiting.popleft()
        running[lane.submit(job)] = lane, job


def _outcome(future: Future[R], job: J, lost: Callable[[J, str], R]) -> R:
    try:
        return future.result()
    except BrokenProcessPool as error:
        return lost(job, str(error))
