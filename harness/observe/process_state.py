"""What a process has beside torch and the provider, and a library has no business to change: keys ``process.*``."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import torch

# Written by torch, Inductor and Triton when they first compile or first use a GPU (seen on 2.11, 2.13 and 2.14).
COMPILERS_OWN: tuple[str, ...] = ("CUDA_MODULE_LOADING", "KINETO_", "PYTORCH_", "TORCH", "TRITON_", "_TORCH")
SECRET = re.compile("AUTH|CRED|KEY|PASS|SECRET|TOKEN", re.IGNORECASE)


def process_state() -> Mapping[str, Any]:
    """Plain values by name (20 µs). Names of the environment that torch writes by itself are left out."""
    return {
        "process.gc": gc.isenabled(),
        "process.gc.threshold": gc.get_threshold(),
        "process.logging.disable": logging.root.manager.disable,
        "process.recursion_limit": sys.getrecursionlimit(),
        "process.mkldnn": bool(torch.backends.mkldnn.enabled),
        "process.cudnn": bool(torch.backends.cudnn.enabled),
        **{f"process.environ.{name}": _shown(name, value) for name, value in os.environ.items() if _is_users(name)},
    }


def _is_users(name: str) -> bool:
    return not name.startswith(COMPILERS_OWN)


def _shown(name: str, value: str) -> str:
    """The value, which a report prints where it changed; of what may be a secret its digest."""
    return hashlib.sha256(value.encode()).hexdigest()[:16] if SECRET.search(name) else value
