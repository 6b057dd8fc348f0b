"""What a process has beside torch and the provider, and a library has no business to change: keys ``process.*``."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch

# Written by torch, Inductor and Triton when they first compile or first use a GPU (seen on 2.11, 2.13 and 2.14).
COMPILERS_OWN: tuple[str, ...] = ("CUDA_MODULE_LOADING", "KINETO_", "PYTORCH_", "TORCH", "TRITON_", "_TORCH")
SECRET = re.compile("AUTH|CRED|KEY|PASS|SECRET|TOKEN", re.IGNORECASE)


def process_state() -> Mapping[str, Any]:
    """Plain values by name (20 µs). Names of the environment that torch writes by itself are left out.

    Python's recursion limit isn't among them: Inductor of torch 2.11 raises it to 2000 for good (seen on an H200).
    """
    return {
        "process.gc": gc.isenabled(),
        "process.gc.threshold": gc.get_threshold(),
        "process.warnings.filters": _broad_filters(),
        "process.warnings.showwarning": f"{warnings.showwarning.__module__}.{warnings.showwarning.__qualname__}",
        "process.logging.disable": logging.root.manager.disable,
        "process.mkldnn": bool(torch.backends.mkldnn.enabled),
        "process.cudnn": bool(torch.backends.cudnn.enabled),
        **{f"process.environ.{name}": _shown(name, value) for name, value in os.environ.items() if _is_users(name)},
    }


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
