"""harness.torch_compat.profiled_kernels: GPU kernels of a profile, each with the operator call that launched it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.torch_compat import ProfiledOp, profiled_kernels, profiled_ops

CUDA, CPU = torch._C._autograd.DeviceType.CUDA, torch._C._autograd.DeviceType.CPU


def event(name: str, start: int, linked: int = 0, device: Any = CUDA) -> Any:
    return SimpleNamespace(
        name=lambda: name,
        start_ns=lambda: start,
        linked_correlation_id=lambda: linked,
        device_type=lambda: device,
    )


def profile_of(*events: Any) -> Any:
    return SimpleNamespace(profiler=SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: list(events))))


OPS = (ProfiledOp("fp8te::linear", (), -1, 7), ProfiledOp("aten::mm", (), -1, 9), ProfiledOp("no number", (), -1, 0))


def test_kernels_come_in_the_order_in_which_they_began_with_their_operator() -> None:
    found = profiled_kernels(profile_of(event("late", 30, 9), event("early", 10, 7), event("middle", 20, 7)), OPS)
    assert [(kernel.name, kernel.op) for kernel in found] == [("early", 0), ("middle", 0), ("late", 1)]


def test_a_kernel_whose_launch_was_not_seen_has_no_operator() -> None:
    found = profiled_kernels(profile_of(event("k", 1, 5), event("l", 2, 0)), OPS)
    assert [kernel.op for kernel in found] == [-1, -1]


def test_copies_fills_and_host_events_are_no_kernels() -> None:
    events = [event("Memcpy HtoD", 1), event("Memset (Device)", 2), event("aten::mm", 3, device=CPU), event("nvjet", 4)]
    assert [kernel.name for kernel in profiled_kernels(profile_of(*events), OPS)] == ["nvjet"]


def test_a_profile_of_the_cpu_has_operators_and_no_kernel() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        torch.ones(4, 4) @ torch.ones(4, 4)
    ops = profiled_ops(profile)
    assert "aten::mm" in {op.name for op in ops}
    assert profiled_kernels(profile, ops) == []


def test_a_profile_that_never_ran_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="holds no events"):
        profiled_kernels(torch.profiler.profile(), ())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_product_on_a_gpu_has_a_kernel_launched_by_its_operator() -> None:
    a = torch.ones(64, 64, device="cuda")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        a @ a
        torch.cuda.synchronize()
    ops = profiled_ops(profile)
    launchers = [ops[kernel.op].name for kernel in profiled_kernels(profile, ops) if kernel.op >= 0]
    assert any(name.startswith(("aten::", "cuda", "cu")) for name in launchers)
