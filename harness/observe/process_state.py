"""What a process has beside torch and the provider, and a library has no business to change: keys ``process.*``."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from harness import torch_compat

_LOGGERS = ("", "torch", "torch._dynamo")
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGABRT")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_ATTENTION = ("flash", "mem_efficient", "math", "cudnn")
_REDUCTIONS = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
# Written by torch, Inductor and Triton when they first compile or first use a GPU (seen on 2.11, 2.13 and 2.14).
COMPILERS_OWN: tuple[str, ...] = ("CUDA_MODULE_LOADING", "KINETO_", "PYTORCH_", "TORCH", "TRITON_", "_TORCH")
SECRET = re.compile("AUTH|CRED|KEY|PASS|SECRET|TOKEN", re.IGNORECASE)


def process_state() -> Mapping[str, Any]:
    """Plain values by name (0.1 ms). Names of the environment that torch writes by itself are left out.

    Python's recursion limit isn't among them: Inductor of torch 2.11 raises it to 2000 for good (seen on an H200). Nor
    is ``sys.path``: Inductor of torch 2.14 writes it as it first compiles.
    """
    return {
        **_files(),
        **_handlers(),
        **_switches(),
        "process.gc": gc.isenabled(),
        "process.gc.threshold": gc.get_threshold(),
        "process.warnings.filters": _broad_filters(),
        "process.warnings.showwarning": f"{warnings.showwarning.__module__}.{warnings.showwarning.__qualname__}",
        "process.logging.disable": logging.root.manager.disable,
        "process.mkldnn": bool(torch.backends.mkldnn.enabled),
        "process.cudnn": bool(torch.backends.cudnn.enabled),
        **{f"process.environ.{name}": _shown(name, value) for name, value in os.environ.items() if _is_users(name)},
    }


def working_directory() -> str:
    """Where relative paths begin; empty where that directory has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def log_levels() -> tuple[tuple[str, int, bool], ...]:
    """Name, level and whether it is disabled, of the loggers that decide of torch's warnings."""
    loggers = ((name, logging.getLogger(name)) for name in _LOGGERS)
    return tuple((name, logger.level, logger.disabled) for name, logger in loggers)


def set_log_levels(levels: tuple[tuple[str, int, bool], ...]) -> None:
    """Make ``levels``, as :func:`log_levels` gave them, those in force."""
    for name, level, disabled in levels:
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.disabled = disabled


def attention_kernels() -> dict[str, bool]:
    """Which kernels ``scaled_dot_product_attention`` may choose on a GPU."""
    return {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in _ATTENTION}


def set_attention_kernels(enabled: Mapping[str, bool]) -> None:
    """Make ``enabled``, as :func:`attention_kernels` gave them, those in force."""
    for name, on in enabled.items():
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(on)


def reductions() -> dict[str, Any]:
    """Whether a GPU's bf16 and fp16 GEMMs may add up in less than float32."""
    return {name: getattr(torch.backends.cuda.matmul, name) for name in _REDUCTIONS}


def set_reductions(allowed: Mapping[str, Any]) -> None:
    """Make ``allowed``, as :func:`reductions` gave it, what is in force."""
    for name, value in allowed.items():
        setattr(torch.backends.cuda.matmul, name, value)


def _files() -> Mapping[str, Any]:
    """What decides where files are found, and who may read those that are written."""
    return {
        "process.directory": working_directory(),
        **({"process.umask": umask} if (umask := _umask()) else {}),
    }


def _umask() -> str:
    """As the kernel tells it, empty where it doesn't (Linux does): asking Python for it sets it, for all threads."""
    try:
        with open("/proc/self/status", "rb") as status:  # a few lines from its top
            return next((str(line[6:].strip(), "ascii") for line in status if line.startswith(b"Umask:")), "")
    except OSError:
        return ""


def _handlers() -> Mapping[str, Any]:
    """Who is called when something happens to the process."""
    return {
        "process.excepthook": _name(sys.excepthook),
        "process.threading.excepthook": _name(threading.excepthook),
        **{f"process.signal.{item.name}": _name(signal.getsignal(item)) for item in _SIGNALS},
    }


def _switches() -> Mapping[str, Any]:
    """How threads take turns, which loggers speak, how tensors are printed, and which kernels torch may choose."""
    return {
        "process.switch_interval": sys.getswitchinterval(),
        **{f"process.logging.{name or 'root'}": (level, disabled) for name, level, disabled in log_levels()},
        **{f"torch.print.{name}": value for name, value in torch_compat.print_options().items()},
        **{f"torch.attention.{name}": on for name, on in attention_kernels().items()},
        **{f"torch.cuda.{name}": allowed for name, allowed in reductions().items()},
    }


def _name(handler: Any) -> str:
    """A function by its name, or a signal's default (``SIG_DFL``) by its own; an object by its class."""
    if isinstance(handler, signal.Handlers):
        return handler.name
    named = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{named.__module__}.{named.__qualname__}"


def _broad_filters() -> tuple[str, ...]:
    """What decides of anybody's warnings, as ``ignore UserWarning``, the first that fits first: filters of Python's own
    classes without a message or a module. Others concern those whom they name, and are written by whatever is imported
    late (SymPy's of its own class, as torch first compiles; NumPy's three messages; seen on 2.13)."""
    return tuple(
        f"{action} {category.__name__}"
        for action, message, category, module, _ in warnings.filters
        if message is None and module is None and isinstance(category, type) and category.__module__ == "builtins"
    )


def _is_users(name: str) -> bool:
    return not name.startswith(COMPILERS_OWN)


def _shown(name: str, value: str) -> str:
    """The value, which a report prints where it changed; of what may be a secret its digest."""
    return hashlib.sha256(value.encode()).hexdigest()[:16] if SECRET.search(name) else value
