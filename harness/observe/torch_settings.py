"""Settings of torch and of the process, taken and put back: what a product leaves reaches no judge, no later cell.

:mod:`harness.observe.state` *shows* what was left, as plain values. Here stand the raw ones, modes and hooks included,
that can be put back without any help of whoever left them.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from harness import torch_compat
from harness.observe.process_state import (
    attention_kernels,
    log_levels,
    reductions,
    set_attention_kernels,
    set_log_levels,
    set_reductions,
    working_directory,
)
from harness.observe.state import flushes_denormals, same

COMPILER = "compiler"
_DEVICES = ("cpu", "cuda")
_kept_guards: list[Any] = []  # inference mode is as the latest guard says only while that guard lives


@dataclass(frozen=True)
class Setting:
    """One thing that a process or a thread has of torch's. ``write(read())`` changes nothing."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def read_settings(*, compiler: bool = True) -> Mapping[str, Any]:
    """Every setting as it is now, by name. Without ``compiler``: not those of Dynamo, AOTAutograd and Inductor, of
    which there are hundreds.
    """
    return {setting.name: setting.read() for setting in SETTINGS if compiler or setting.name != COMPILER}


def put_back(found: Mapping[str, Any]) -> None:
    """Make every setting in ``found`` (of :func:`read_settings`) what it was; generators are nobody's setting."""
    for setting in SETTINGS:
        if setting.name in found and not same(setting.read(), found[setting.name]):
            setting.write(found[setting.name])


@contextmanager
def as_found(found: Mapping[str, Any]) -> Iterator[None]:
    """Settings as in ``found`` inside; afterwards those that were in force before, leaks included."""
    left = {setting.name: setting.read() for setting in SETTINGS if setting.name in found}
    put_back(found)
    try:
        yield
    finally:
        put_back(left)


@contextmanager
def ending_here() -> Iterator[None]:
    """What the body leaves changed of torch's settings ends with it."""
    found = read_settings()
    try:
        yield
    finally:
        put_back(found)
        if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
            torch.clear_autocast_cache()  # casts that a region which never ended has kept


def _set_inference(on: bool) -> None:
    _kept_guards.append(torch_compat.enter_inference_mode(on))


def _nesting() -> int:
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


def _set_nesting(depth: int) -> None:
    while _nesting() < depth:
        torch.autocast_increment_nesting()
    while _nesting() > depth:
        torch.autocast_decrement_nesting()


def _autocast() -> tuple[Any, ...]:
    return tuple((name, torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in _DEVICES)


def _set_autocast(devices: tuple[Any, ...]) -> None:
    for name, enabled, dtype in devices:
        torch.set_autocast_enabled(name, enabled)
        torch.set_autocast_dtype(name, dtype)


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(values: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(values[0], warn_only=values[1])


def _cudnn() -> tuple[bool, bool]:
    return torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark


def _set_cudnn(values: tuple[bool, bool]) -> None:
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = values


def _set_mkldnn(on: bool) -> None:
    torch.backends.mkldnn.enabled = on  # type: ignore[assignment]  # a property of the module's own class


def _set_directory(path: str) -> None:
    if os.path.isdir(path):
        os.chdir(path)


def _cuda_device() -> int | None:
    return torch.cuda.current_device() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]


def _set_cuda_device(index: int | None) -> None:
    if index is not None:
        torch.cuda.set_device(index)


def _set_compiler(config: Mapping[str, Any]) -> None:
    now = torch_compat.compile_config()
    torch_compat.set_compile_config(
        {name: value for name, value in config.items() if name not in now or not same(now[name], value)}
    )


# In the order of writing: modes first, so that they see nothing of the rest; inference mode before the gradients and
# threads that it moves; the compiler's settings last, because torch's determinism moves one of them.
SETTINGS: tuple[Setting, ...] = (
    Setting("dispatch_stack", torch_compat.dispatch_stack, torch_compat.set_dispatch_stack),
    Setting("function_stack", torch_compat.function_stack, torch_compat.set_function_stack),
    Setting("inference_mode", torch.is_inference_mode_enabled, _set_inference),
    Setting("grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("anomaly", _anomaly, lambda values: torch.set_anomaly_enabled(*values)),
    Setting("saved_tensors_hooks", torch_compat.saved_tensors_hooks, torch_compat.set_saved_tensors_hooks),
    Setting("module_hooks", torch_compat.module_hooks, torch_compat.set_module_hooks),
    Setting("autograd_compiler", torch_compat.autograd_compiler, torch_compat.set_autograd_compiler),
    Setting(
        "multithreading",
        lambda: torch_compat.autograd_switches()["multithreading"],
        torch_compat.set_multithreaded_backward,
    ),
    Setting("autocast", _autocast, _set_autocast),
    Setting("autocast.nesting", _nesting, _set_nesting),
    Setting("autocast.cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    Setting("default_dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("deterministic", _deterministic, _set_deterministic),
    Setting("float32_matmul_precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    Setting("cudnn", _cudnn, _set_cudnn),
    Setting("flush_denormal", flushes_denormals, torch.set_flush_denormal),
    Setting("threads", torch.get_num_threads, torch.set_num_threads),
    Setting("mkldnn", lambda: torch.backends.mkldnn.enabled, _set_mkldnn),
    Setting("gc", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    Setting("logging", lambda: logging.root.manager.disable, logging.disable),
    Setting("log_levels", log_levels, set_log_levels),
    Setting("directory", working_directory, _set_directory),
    Setting("switch_interval", sys.getswitchinterval, sys.setswitchinterval),
    Setting("excepthook", lambda: sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
    Setting("print", torch_compat.print_options, torch_compat.set_print_options),
    Setting("attention", attention_kernels, set_attention_kernels),
    Setting("reductions", reductions, set_reductions),
    Setting("cuda.device", _cuda_device, _set_cuda_device),
    Setting("stance", torch_compat.stance_in_force, torch_compat.set_stance_in_force),
    Setting(COMPILER, torch_compat.compile_config, _set_compiler),
)
