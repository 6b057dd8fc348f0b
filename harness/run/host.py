"""What this machine is: the resolved architecture and the versions that results are keyed on."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

import torch

PACKAGES = (
    "torch",
    "triton",
    "transformer_engine",
    "torchao",
    "numpy",
    "pytest",
    "pytest-xdist",
    "pydantic",
)


def host_arch() -> str:
    """``sm90`` for the current CUDA device of compute capability 9.0, ``cpu`` without one."""
    if not torch.cuda.is_available():
        return "cpu"
    major, minor = torch.cuda.get_device_capability()
    return f"sm{major}{minor}"


def resolve_arch(arch: str) -> str:
    """The architecture a cell means: ``host`` becomes this machine's, others stay."""
    return host_arch() if arch == "host" else arch


def device_for(arch: str) -> torch.device:
    """Where a resolved architecture runs here; an architecture that isn't here is traced on the CPU."""
    return torch.device("cuda") if arch != "cpu" and arch == host_arch() else torch.device("cpu")


def cuda_version() -> tuple[int, int] | None:
    """(major, minor) of the CUDA that torch was built with, None for a CPU build."""
    if torch.version.cuda is None:
        return None
    major, minor = torch.version.cuda.split(".")[:2]
    return int(major), int(minor)


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions of what takes part, by distribution name; what isn't installed is left out."""
    found = {"python": platform.python_version(), "cuda": torch.version.cuda or "none"}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe() -> Mapping[str, Any]:
    """Versions and hardware for run.json. Called in a worker: it may initialise CUDA."""
    gpus = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            props = torch.cuda.get_device_properties(index)
            gpus.append(
                {
                    "name": props.name,
                    "memory_mib": props.total_memory >> 20,
                    "capability": host_arch(),
                    "uuid": f"GPU-{props.uuid}",
                }
            )
    return {
        "versions": versions(),
        "arch": host_arch(),
        "gpus": gpus,
        "cpu": platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count() or 0,
        "platform": sys.platform,
        "torch_threads": torch.get_num_threads(),
    }
