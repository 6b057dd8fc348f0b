"""One GPU a process, known before anybody asks CUDA."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.run.gpus import VISIBLE, Device
from harness.run.leases import Lease, LeaseBook
from harness.run.worker_gpu import LEASE, GpuError, OwnGpu, check_visible, hand_out, handed, in_use_mib
from tests.support.fake_gpus import gpu

TWO = (gpu(0), gpu(1))


@pytest.fixture
def lease(tmp_path: Path) -> Lease:
    (found,) = LeaseBook(tmp_path).claim((gpu(1),), 1) or []
    return found


@pytest.fixture
def visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's own setting; no torch in this process yet."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv(VISIBLE, "0,1")


def test_a_worker_takes_what_its_specification_says(lease: Lease) -> None:
    spec = SimpleNamespace(env={"OTHER": "kept"})
    hand_out([spec], [lease])
    assert spec.env[VISIBLE] == "1"
    env = dict(spec.env)
    found = handed(env)
    assert found == lease
    assert env == {"OTHER": "kept", VISIBLE: "1"}, "the cell's own children are no workers"


def test_no_lease_no_gpu() -> None:
    assert handed({VISIBLE: "0,1"}) is None


@pytest.mark.parametrize("setting", ["0,1", "0", "", None])
def test_an_environment_that_does_not_agree_is_an_internal_error(lease: Lease, setting: str | None) -> None:
    env = {LEASE: lease.as_text()} | ({} if setting is None else {VISIBLE: setting})
    with pytest.raises(GpuError, match=r"was given GPU 1 \(NVIDIA L4\), CUDA_VISIBLE_DEVICES=1, and has"):
        handed(env)


@pytest.mark.usefixtures("visible")
def test_a_pytest_that_runs_cells_itself_sees_one_gpu_meanwhile(lease: Lease, tmp_path: Path) -> None:
    own = OwnGpu(lease, TWO)
    assert os.environ[VISIBLE] == "1"
    own.give_back()
    assert os.environ[VISIBLE] == "0,1"
    assert LeaseBook(tmp_path).claim_whole((gpu(1),)) is not None


@pytest.mark.usefixtures("visible")
def test_an_unset_variable_is_unset_again(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE)
    own = OwnGpu(lease, TWO)
    assert os.environ[VISIBLE] == "1"
    own.give_back()
    assert VISIBLE not in os.environ


@pytest.mark.usefixtures("visible")
def test_torch_must_not_be_there_yet(lease: Lease, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(GpuError, match=r"torch was imported before GPU 1 \(NVIDIA L4\) was leased"):
        OwnGpu(lease, TWO)
    assert os.environ[VISIBLE] == "0,1"
    assert LeaseBook(tmp_path).claim_whole((gpu(1),)) is not None


@pytest.mark.usefixtures("visible")
def test_the_only_visible_gpu_needs_no_setting(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[bool] = []
    cuda = SimpleNamespace(is_initialized=lambda: True, empty_cache=lambda: freed.append(True))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    own = OwnGpu(lease, TWO[1:])
    assert os.environ[VISIBLE] == "0,1"
    own.give_back()
    assert freed == [True], "a cell that must be alone gets the memory that torch kept"


def test_more_gpus_than_the_leased_one_are_an_internal_error(lease: Lease) -> None:
    check_visible(lease, 1)
    check_visible(lease, 0)  # torch without CUDA
    with pytest.raises(GpuError, match="torch sees 8 GPUs"):
        check_visible(lease, 8)


def test_memory_in_use() -> None:
    devices = [Device("GPU-0", "x", 1000, 900), Device("GPU-1", "x", 1000, 400)]
    assert in_use_mib(gpu(1), lambda: devices) == 600
    assert in_use_mib(gpu(2), lambda: devices) is None
    assert in_use_mib(gpu(1), lambda: None) is None
