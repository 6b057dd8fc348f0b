from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.run import worker_count
from harness.run.gpus import Gpu
from harness.run.leases import DIRECTORY, LeaseBook
from harness.run.worker_count import auto_workers, fitting, gpu_room, place_workers, too_many, usable_cores
from tests.support.fake_gpus import H200_MIB, gpu


@pytest.mark.parametrize(
    ("cells", "cores", "room", "expected"),
    [
        (60, 8, None, 8),
        (3, 8, None, 3),
        (60, 16, 23, 16),  # H200
        (60, 16, 3, 3),  # L4
        (60, 16, 0, 1),
        (0, 8, None, 1),
    ],
)
def test_auto_is_the_smallest_of_its_limits(cells: int, cores: int, room: int | None, expected: int) -> None:
    assert auto_workers(cells, cores, room) == expected


@pytest.mark.parametrize(
    ("total", "free", "expected"),
    [
        (H200_MIB, H200_MIB, 23),
        (H200_MIB, 20000, 3),  # somebody else's training run
        (H200_MIB, None, 23),
        (None, None, 1),
        (23034, 3000, 0),
    ],
)
def test_workers_by_free_memory(total: int | None, free: int | None, expected: int) -> None:
    assert fitting(Gpu(0, "0", total_mib=total, free_mib=free)) == expected


def test_room_is_the_sum_over_gpus_less_what_other_runs_have_leased(tmp_path: Path) -> None:
    env = {DIRECTORY: str(tmp_path)}
    gpus = (gpu(0), gpu(1, H200_MIB, 13000))
    assert gpu_room(gpus, env) == 3 + 2
    held = LeaseBook(tmp_path).claim((gpu(0),), 2)
    assert gpu_room(gpus, env) == 1 + 2
    assert held is not None
    held[0].release()
    assert gpu_room(gpus, env) == 2 + 2
    (tmp_path / "file").touch()
    assert gpu_room(gpus, {DIRECTORY: str(tmp_path / "file" / "x")}) == 3 + 2


@pytest.mark.parametrize(
    ("asked", "gpus", "workers", "warns"),
    [
        (None, (gpu(0),), 3, False),
        (None, (gpu(0), gpu(1)), 6, False),
        (None, (), 16, False),
        (2, (gpu(0),), 2, False),
        (5, (gpu(0),), 5, True),
        (0, (gpu(0),), 0, False),
        (1, (gpu(0, None),), 1, False),
        (2, (gpu(0, None),), 2, True),
        (50, (), 20, False),
    ],
)
def test_placing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: int | None,
    gpus: Sequence[Gpu],
    workers: int,
    warns: bool,
) -> None:
    monkeypatch.setattr(worker_count, "visible_gpus", lambda env: gpus)
    monkeypatch.setattr(worker_count, "usable_cores", lambda: 16)
    placing = place_workers(asked, 20, {DIRECTORY: str(tmp_path)})
    assert (placing.workers, placing.gpus, bool(placing.warnings)) == (workers, gpus, warns)


def test_one_worker_may_always_try() -> None:
    assert too_many(1, (gpu(0, 4096, 0),)) == ()
    assert too_many(2, (gpu(0, 4096, 0),)) == (
        "2 workers were asked for and 0 fit into free GPU memory: cells may run out of it",
    )


def test_cores_are_those_this_process_may_use() -> None:
    assert usable_cores() == len(os.sched_getaffinity(0))
