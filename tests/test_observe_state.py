"""Every key of the state snapshot: a leak of it is named, and the pair of snapshots without one is equal."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from harness.observe.state import (
    ABSENT,
    RNG_PREFIXES,
    compiler_settings,
    diff,
    freeze,
    provider_state,
    same,
    torch_state,
)
from tests.support.fake_provider import STATE, FakeProvider


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def setting(setter: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    setter(value)
    try:
        yield
    finally:
        setter(before)


@contextlib.contextmanager
def nesting() -> Iterator[None]:
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()


def _benchmark(value: bool) -> None:
    torch.backends.cudnn.benchmark = value


def _cudnn_deterministic(value: bool) -> None:
    torch.backends.cudnn.deterministic = value


def _cpu_dtype(value: torch.dtype) -> None:
    torch.set_autocast_dtype("cpu", value)


def _cuda_dtype(value: torch.dtype) -> None:
    torch.set_autocast_dtype("cuda", value)


@contextlib.contextmanager
def module_hook() -> Iterator[None]:
    handle = torch.nn.modules.module.register_module_full_backward_hook(lambda module, inputs, outputs: None)
    try:
        yield
    finally:
        handle.remove()
        torch.nn.modules.module._global_is_full_backward_hook = None  # removing the hook leaves it


Leak = Callable[[], contextlib.AbstractContextManager[Any]]

# What is left open -> the keys that must be named, all of them.
LEAKS: dict[str, tuple[Leak, set[str]]] = {
    "autocast": (lambda: torch.autocast("cpu"), {"torch.autocast.cpu.enabled", "torch.autocast.nesting"}),
    "autocast nesting": (nesting, {"torch.autocast.nesting"}),
    "autocast cuda": (
        lambda: setting(lambda v: torch.set_autocast_enabled("cuda", v), True, False),
        {"torch.autocast.cuda.enabled"},
    ),
    "autocast dtype": (lambda: setting(_cpu_dtype, torch.float16, torch.bfloat16), {"torch.autocast.cpu.dtype"}),
    "autocast cuda dtype": (
        lambda: setting(_cuda_dtype, torch.bfloat16, torch.float16),
        {"torch.autocast.cuda.dtype"},
    ),
    "autocast cache": (lambda: setting(torch.set_autocast_cache_enabled, False, True), {"torch.autocast.cache"}),
    "grad mode": (torch.no_grad, {"torch.grad_enabled"}),
    "inference mode": (
        torch.inference_mode,
        {"torch.grad_enabled", "torch.inference_mode", "torch.autograd.multithreading"},
    ),
    "anomaly mode": (lambda: torch.autograd.set_detect_anomaly(True), {"torch.anomaly_mode"}),
    "backward on one thread": (
        lambda: torch.autograd.set_multithreading_enabled(False),
        {"torch.autograd.multithreading"},
    ),
    "saved tensor hooks off": (
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("off"),
        {"torch.autograd.saved_tensors_hooks"},
    ),
    "saved tensor hooks": (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
        {"torch.autograd.pack_hooks_active"},
    ),
    "default dtype": (
        lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
        {"torch.default_dtype"},
    ),
    "default device": (lambda: torch.device("meta"), {"torch.default_device", "torch.function_modes"}),
    "dispatch mode": (DispatchMode, {"torch.dispatch_modes"}),
    "function mode": (FunctionMode, {"torch.function_modes"}),
    "deterministic": (
        lambda: setting(torch.use_deterministic_algorithms, True, False),
        {"torch.deterministic", "inductor.deterministic"},
    ),
    "matmul precision": (
        lambda: setting(torch.set_float32_matmul_precision, "high", "highest"),
        {"torch.float32_matmul_precision"},
    ),
    "cudnn benchmark": (lambda: setting(_benchmark, True, False), {"torch.cudnn.benchmark"}),
    "cudnn deterministic": (lambda: setting(_cudnn_deterministic, True, False), {"torch.cudnn.deterministic"}),
    "module hook": (module_hook, {"torch.module_hooks"}),
    "flop counter": (lambda: FlopCounterMode(display=False), {"torch.dispatch_modes", "torch.module_hooks"}),
    "denormals": (lambda: setting(torch.set_flush_denormal, True, False), {"torch.flush_denormal"}),
    "threads": (
        lambda: setting(torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()),
        {"torch.threads"},
    ),
    "stance": (lambda: setting(torch.compiler.set_stance, "force_eager", "default"), {"torch.dynamo_stance"}),
    "dynamo setting": (lambda: torch._dynamo.config.patch(recompile_limit=99), {"dynamo.recompile_limit"}),
    "inductor setting": (
        lambda: torch._inductor.config.patch({"triton.cudagraphs": True}),
        {"inductor.triton.cudagraphs"},
    ),
    "aot setting": (lambda: torch._functorch.config.patch(debug_partitioner=True), {"functorch.debug_partitioner"}),
}


def _everything() -> dict[str, Any]:
    return {**torch_state(), **compiler_settings()}


@pytest.mark.parametrize("name", LEAKS)
def test_leak_is_named_and_its_end_is_seen(name: str) -> None:
    leak, keys = LEAKS[name]
    before = _everything()
    with leak():
        found = diff(before, _everything(), "after eager")
    found_keys = {item.key for item in found}
    # inductor.deterministic follows torch's flag on some versions only.
    assert found_keys - {"inductor.deterministic"} == keys - {"inductor.deterministic"}
    assert all(item.moment == "after eager" and item.before != item.after for item in found)
    assert diff(before, _everything(), "after eager") == ()


def test_module_hooks_are_shown_by_kind_and_function() -> None:
    with module_hook():
        shown = torch_state()["torch.module_hooks"]
    assert shown == ("backward_hooks: module_hook.<locals>.<lambda>", "is_full_backward_hook: True")


def test_generators_are_compared_on_request() -> None:
    before, with_rng = torch_state(), torch_state(rng=True)
    torch.rand(1)
    assert diff(before, torch_state(), "x") == ()
    assert [item.key for item in diff(with_rng, torch_state(rng=True), "x")] == [f"{RNG_PREFIXES[0]}cpu"]


def test_reading_the_state_changes_nothing() -> None:
    first = torch_state(rng=True)
    assert diff(first, torch_state(rng=True), "x") == ()


def test_compiling_leaves_torchs_state_alone() -> None:
    before = {**torch_state(rng=True), **compiler_settings()}
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: x * 2, backend="aot_eager")(x).sum().backward()
    assert diff(before, {**torch_state(rng=True), **compiler_settings()}, "x") == ()


# ---- provider snapshots ---------------------------------------------------------------------------------------------


def test_provider_state_names_a_leak() -> None:
    provider = FakeProvider()
    provider.reset()
    before = provider_state(provider)
    STATE.enabled, STATE.depth = True, 1
    found = diff(before, provider_state(provider), "after exception")
    provider.reset()
    assert [(item.key, item.before, item.after) for item in found] == [
        ("depth", "0", "1"),
        ("enabled", "False", "True"),
    ]
    assert diff(before, provider_state(provider), "x") == ()


def test_swapped_object_shows_in_its_identity() -> None:
    before = {"state.id": id(object), "state.depth": 0}
    (item,) = diff(before, {**before, "state.id": id(int)}, "after reset")
    assert item.key == "state.id"


def test_appearing_and_vanishing_keys_are_differences() -> None:
    found = diff({"a": None, "b": 1}, {"b": 1, "c": None}, "x")
    assert [(item.key, item.before, item.after) for item in found] == [("a", "None", ABSENT), ("c", ABSENT, "None")]


class _Odd:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass(frozen=True)
class _Recipe:
    margin: int


NAN = float("nan")
EQUAL = [
    (1, 1),
    (NAN, NAN),
    ((1.0, NAN), (1.0, math.nan)),
    (_Recipe(1), _Recipe(1)),
    (torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN])),
    (torch.ones(2).to(torch.float8_e4m3fn), torch.ones(2).to(torch.float8_e4m3fn)),
    (torch.empty(0), torch.empty(0)),
]
UNEQUAL = [
    (1, 2),
    (1, True),
    (1, 1.0),
    (0.0, NAN),
    ((1,), (1, 2)),
    ((1.0, 2.0), (1.0, NAN)),
    (_Recipe(1), _Recipe(2)),
    (_Odd(), _Odd()),
    (torch.ones(2), torch.ones(3)),
    (torch.ones(2), torch.ones(2, dtype=torch.float64)),
    (torch.tensor([1.0, NAN]), torch.tensor([1.0, 2.0])),
    (torch.ones(2).to(torch.float8_e4m3fn), torch.zeros(2).to(torch.float8_e4m3fn)),
    (torch.ones(1), 1.0),
]


@pytest.mark.parametrize(("left", "right"), EQUAL)
def test_same(left: Any, right: Any) -> None:
    assert same(left, right)
    assert diff({"k": left}, {"k": right}, "x") == ()


@pytest.mark.parametrize(("left", "right"), UNEQUAL)
def test_not_same(left: Any, right: Any) -> None:
    assert not same(left, right)
    assert [item.key for item in diff({"k": left}, {"k": right}, "x")] == ["k"]


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, [2]], lambda v: v[1].append(3)),
        ({"a": [1]}, lambda v: v["a"].append(2)),
        ({1, 2}, lambda v: v.add(3)),
        (torch.ones(2), lambda v: v.zero_()),
        ([torch.ones(2)], lambda v: v[0].zero_()),
        ({"b": torch.ones(1)}, lambda v: v.update(c=1)),
    ],
)
def test_a_live_object_in_a_snapshot_cannot_hide_its_change(value: Any, change: Callable[[Any], Any]) -> None:
    before, unchanged = freeze(value), freeze(value)
    assert same(before, unchanged)
    change(value)
    assert not same(before, freeze(value))


def test_frozen_mappings_ignore_order() -> None:
    assert same(freeze({"a": 1, "b": 2}), freeze({"b": 2, "a": 1}))


def test_values_are_shown_short_and_without_addresses() -> None:
    (item,) = diff({"k": "x" * 1000, "o": 1}, {"k": "y", "o": 1}, "m")
    assert len(item.before) == 200
    (item,) = diff({"k": object()}, {"k": torch.ones(2)}, "m")
    assert item.before == "<object object at 0x...>"
    assert item.after == "tensor (2,) torch.float32: [1.0, 1.0]"
