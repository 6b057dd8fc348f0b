"""What a cell leaves on the GPU, told by CUDA itself. Nobody here has one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness.run import device


def cuda(monkeypatch: pytest.MonkeyPatch, synchronize: Callable[[], None] = lambda: None) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)


def fails() -> None:
    raise RuntimeError("CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA\n")


def test_a_lost_context_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda(monkeypatch, fails)
    assert device.lost_context() == "CUDA error: device-side assert triggered"
    cuda(monkeypatch)
    assert device.lost_context() == ""


def test_a_process_without_cuda_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda(monkeypatch, fails)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert device.lost_context() == ""
    assert device.peak_mib() == 0


def test_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda(monkeypatch)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda index: 700 << 20)
    assert device.peak_mib() == 700
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda index: fails())
    assert device.peak_mib() == 0
