"""Machines with GPUs, as far as processes that ask nvidia-smi can tell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from harness.run.gpus import Device, Gpu

H200_MIB = 143771
L4_MIB = 23034


def device(number: int, name: str = "NVIDIA H200", total: int = H200_MIB, free: int | None = None) -> Device:
    return Device(f"GPU-{number}{number}{number}{number}-{number}", name, total, total if free is None else free)


def gpu(index: int, total: int | None = L4_MIB, free: int | None = None) -> Gpu:
    return Gpu(index, str(index), f"GPU-{index}", "NVIDIA L4", total, total if free is None else free)


def smi(directory: Path, script: str) -> dict[str, str]:
    """The environment in which ``nvidia-smi`` is this shell script, and lock files lie in ``directory``."""
    folder = directory / "bin"
    folder.mkdir(exist_ok=True)
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "FP8_HARNESS_LEASE_DIR": str(directory / "leases")}


def machine(directory: Path, devices: Sequence[Device]) -> dict[str, str]:
    """The environment of a machine with ``devices``."""
    lines = [
        f"echo '{index}, {one.uuid}, {one.name}, {one.total_mib}, {one.free_mib}, Disabled'"
        for index, one in enumerate(devices)
    ]
    return smi(directory, "\n".join(lines) or ":")
