"""Faults that leave something of torch's or the process's: the key that shows it, and that it is mended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from harness.faults import FAULTS
from harness.faults.at_exit import entered_at_exit, exit_fault
from harness.faults.fault import Fault
from harness.observe.process_state import process_state
from harness.observe.state import compiler_settings, diff, torch_state
from harness.providers.load import loaded_provider
from harness.registry import load
from harness.types import Spec

# Fault -> every key that it changes. Compiled autograd switches the engine's threads off too.
LEFT = {
    "amp_dtype_left": {"torch.autocast.cpu.dtype"},
    "compiled_autograd_left": {"torch.autograd.compiled", "torch.autograd.multithreading"},
    "default_dtype_left": {"torch.default_dtype"},
    "default_device_left": {"torch.default_device", "torch.function_modes"},
    "denormals_flushed": {"torch.flush_denormal"},
    "dispatch_mode_left": {"torch.dispatch_modes"},
    "environment_written": {"process.environ.NVTE_LEFT_BEHIND"},
    "errors_suppressed": {"dynamo.suppress_errors"},
    "flop_counter_left": {"torch.dispatch_modes", "torch.module_hooks"},
    "function_mode_left": {"torch.function_modes"},
    "gc_left_off": {"process.gc"},
    "grad_mode_left_off": {"torch.grad_enabled"},
    "logging_disabled": {"process.logging.disable"},
    "matmul_precision_left": {"torch.float32_matmul_precision"},
    "mkldnn_left_off": {"process.mkldnn"},
    "module_hooks_left": {"torch.module_hooks"},
    "python_rng_reseeded": {"process.rng.python"},
    "saved_tensor_hooks_left": {"torch.autograd.pack_hooks_active"},
    "stance_left": {"torch.dynamo_stance"},
    "threads_left": {"torch.threads"},
    "warnings_silenced": {"process.warnings.filters"},
}


def state() -> dict[str, object]:
    return {**torch_state(rng=True), **process_state(), **compiler_settings()}


def keys(before: dict[str, object]) -> set[str]:
    return {item.key for item in diff(before, state(), "")}


@pytest.mark.parametrize("name", sorted(LEFT))
def test_a_fault_leaves_its_own_key_and_mends_it(name: str) -> None:
    fault: Fault = load(FAULTS[name])
    before = state()
    with loaded_provider(Spec("reference")) as clean, fault.apply(clean.provider) as broken:
        with torch.random.fork_rng():  # parameters are drawn
            broken.linear(16, 16, bias=True, dtype=torch.bfloat16, device=torch.device("cpu"))
        for _ in range(2):
            with broken.autocast(enabled=True, recipe=broken.recipe(Spec("float8_current_scaling"))):
                pass
        assert keys(before) == LEFT[name]
    assert keys(before) == set()


def test_a_clean_region_leaves_nothing() -> None:
    before = state()
    with loaded_provider(Spec("reference")) as clean:
        with clean.provider.autocast(enabled=True, recipe=clean.provider.recipe(Spec("float8_current_scaling"))):
            pass
        assert keys(before) == set()


def test_what_is_left_is_mended_after_an_exception_too() -> None:
    left: list[str] = []
    apply = exit_fault(lambda: left.append("left"), left.clear)
    with loaded_provider(Spec("reference")) as clean, pytest.raises(ZeroDivisionError):
        with apply(clean.provider) as broken, broken.autocast(enabled=False):
            raise ZeroDivisionError
    assert left == []


def test_a_context_is_entered_once_and_left_at_the_end() -> None:
    seen: list[str] = []

    @contextmanager
    def noting() -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    with loaded_provider(Spec("reference")) as clean:
        with entered_at_exit(noting)(clean.provider) as broken:
            for _ in range(3):
                with broken.autocast(enabled=False):
                    pass
            assert seen == ["in"]
        assert seen == ["in", "out"]


def test_without_a_region_nothing_is_entered() -> None:
    seen: list[str] = []

    @contextmanager
    def noting() -> Iterator[None]:
        seen.append("in")
        yield

    with loaded_provider(Spec("reference")) as clean, entered_at_exit(noting)(clean.provider):
        pass
    assert seen == []
