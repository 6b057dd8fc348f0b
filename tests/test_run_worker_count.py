from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.run.worker_count import auto_workers, smallest_gpu_mib, usable_cores


@pytest.mark.parametrize(
    ("cells", "cores", "gpu_mib", "expected"),
    [
        (60, 8, None, 8),
        (3, 8, None, 3),
        (60, 16, 143771, 16),  # H200
        (60, 16, 24564, 3),  # L4
        (60, 16, 4096, 1),
        (0, 8, None, 1),
    ],
)
def test_auto_is_the_smallest_of_its_limits(cells: int, cores: int, gpu_mib: int | None, expected: int) -> None:
    assert auto_workers(cells, cores, gpu_mib) == expected


def test_cores_are_those_this_process_may_use() -> None:
    assert usable_cores() == len(os.sched_getaffinity(0))


def fake_smi(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = directory / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_the_smallest_gpu_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path, monkeypatch, "echo 81559; echo 24564")
    assert smallest_gpu_mib({}) == 24564
    assert smallest_gpu_mib({"CUDA_VISIBLE_DEVICES": ""}) is None


def test_a_driver_that_does_not_answer_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path, monkeypatch, "echo 'NVIDIA-SMI has failed'; exit 9")
    assert smallest_gpu_mib({}) is None
