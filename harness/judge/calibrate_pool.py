"""Cells measured one after the other, or by several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import torch

from harness.judge.calibrate_measure import Job, measure
from harness.judge.calibrate_records import Measured


class WorkerLost(Exception):
    """A process died; the cells that it and the others had not finished are not measured."""


def measure_all(jobs: Sequence[Job], workers: int) -> Iterator[Measured]:
    """Every job's record, as they finish. An interrupt, or leaving the iterator, drops the jobs that haven't begun.

    Raises:
        WorkerLost: a process was killed or crashed.
    """
    if workers <= 1:
        yield from map(measure, jobs)
        return
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ProcessPoolExecutor(
        min(workers, max(len(jobs), 1)),
        mp_context=multiprocessing.get_context("spawn"),  # CUDA and torch's threads don't survive a fork
        initializer=start_process,
        initargs=(threads,),
    )
    try:
        for future in as_completed([pool.submit(measure, job) for job in jobs]):
            yield future.result()
    except BrokenProcessPool as error:
        raise WorkerLost(str(error)) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def start_process(threads: int) -> None:
    """In a new process: the parent alone answers an interrupt, and processes don't compete for cores."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
