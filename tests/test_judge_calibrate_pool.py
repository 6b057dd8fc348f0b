"""harness.judge.calibrate_pool: processes give what this one gives, and one that dies is not passed over."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import pytest

from harness.judge import calibrate_pool
from harness.judge.calibrate_measure import Job, measure
from harness.judge.calibrate_pool import WorkerLost, measure_all
from harness.types import Axes, Evidence, Spec

AXES = Axes("toy_linear", Spec("reference"), Spec("float8_current_scaling"), "cpu", backend="eager", shape=(32, 32, 32))
GOOD = Job(AXES, Evidence.NATIVE)


class DyingPool:
    """A pool whose first process gives its result and whose others die."""

    def __init__(self) -> None:
        self.submitted = 0
        self.closed = False

    def submit(self, function: Any, job: Job) -> Future[Any]:
        future: Future[Any] = Future()
        if self.submitted == 0:
            future.set_result(job)
        else:
            future.set_exception(BrokenProcessPool("killed"))
        self.submitted += 1
        return future

    def shutdown(self, **options: bool) -> None:
        assert options["cancel_futures"]
        self.closed = True


def test_another_process_measures_the_same() -> None:
    (there,) = measure_all([GOOD], workers=2)
    (here,) = measure_all([GOOD], workers=1)
    assert there.judged
    assert there.findings == ()
    assert {item.name: item.count for item in there.met} == {item.name: item.count for item in here.met}
    assert here.cell == there.cell


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = DyingPool()
    monkeypatch.setattr(calibrate_pool, "ProcessPoolExecutor", lambda *arguments, **options: pool)
    with pytest.raises(WorkerLost, match="killed"):
        list(measure_all([GOOD] * 3, workers=2))
    assert pool.closed


def test_a_cell_that_raises_is_a_finding_and_no_more() -> None:
    broken = measure(replace(GOOD, axes=replace(AXES, nesting="unknown")))
    assert not broken.judged
    assert broken.findings == ("KeyError: 'unknown'",)
    assert broken.met == ()
