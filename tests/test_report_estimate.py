"""The time left: right for equal cells on any number of workers, and not hours because one hangs."""

from __future__ import annotations

import pytest

from harness.report.estimate import left, typical


@pytest.mark.parametrize(
    ("seconds", "mean"),
    [
        ([], 0.0),
        ([3.0], 3.0),
        ([1.0, 120.0], 1.0),
        ([120.0, 1.0, 1.0, 1.0], 1.0),
        ([2.0] * 16 + [30.0] * 4, 7.6),  # many that take long are no outliers
        ([0.0] * 12 + [4.0] * 8, 1.6),  # neither are skips
    ],
)
def test_one_that_hangs_does_not_count_and_many_that_take_long_do(seconds: list[float], mean: float) -> None:
    assert typical(seconds) == pytest.approx(mean)


@pytest.mark.parametrize("workers", [1, 4])
def test_equal_cells_take_what_they_took(workers: int) -> None:
    spent = 20 * 2.0 / workers
    assert left(100, [2.0] * 20, [1.0] * workers, spent + 1.0) == pytest.approx(100 * 2.0 / workers)


@pytest.mark.parametrize("hung", [10.0, 100.0, 1000.0])
def test_while_one_hangs_it_does_not_grow(hung: float) -> None:
    assert left(500, [1.0, 1.0], [hung], hung + 2.0) == pytest.approx(500.0)  # by throughput: hours
    beside = left(500, [1.0] * 100, [hung], max(hung, 100.0))  # another worker goes on
    assert 250.0 <= beside <= 500.0


def test_at_once() -> None:
    assert left(10, [1.0], [], 0.0) == 10.0
    assert left(0, [1.0], [], 1.0) == 0.0
