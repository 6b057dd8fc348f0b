"""A process and the one GPU that it may see. The environment must say so before anything asks CUDA what there is.

xdist's workers get it from execnet, before their Python has imported pytest (execnet's ``env:NAME=value``); a worker
that replaces another is started from the same specification, and so on the same GPU. A pytest that runs cells itself
sets it for itself, before torch is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any

from harness.run.gpus import VISIBLE, Gpu, Query, query_devices
from harness.run.leases import Lease, joined

LEASE = "FP8_HARNESS_LEASE"


class GpuError(RuntimeError):
    """A process that was to see one GPU sees something else: a defect of the harness, which ends the run."""


def hand_out(specs: Sequence[Any], leases: Sequence[Lease]) -> None:
    """Write the environment of each worker into its execnet specification (XSpec)."""
    for spec, lease in zip(specs, leases, strict=True):
        spec.env.update({VISIBLE: lease.gpu.token, LEASE: lease.as_text()})


def handed(env: MutableMapping[str, str]) -> Lease | None:
    """In a worker: the lease that it was started with, from now on held by itself too; None on a machine without GPU.

    Raises:
        GpuError: the environment does not agree with the lease.
        OSError: whoever took the lease is gone, and somebody else has it.
    """
    text = env.pop(LEASE, None)
    if text is None:
        return None
    lease = joined(text)
    if env.get(VISIBLE) != lease.gpu.token:
        raise GpuError(f"this worker was given {lease.gpu}, {VISIBLE}={lease.gpu.token}, and has {env.get(VISIBLE)!r}")
    return lease


class OwnGpu:
    """The GPU of a pytest that runs cells itself: its own setting is put aside meanwhile."""

    def __init__(self, lease: Lease, visible: Sequence[Gpu]) -> None:
        """Raises GpuError when torch was imported: it may know all GPUs already. With one visible nothing is set."""
        self.lease = lease
        self._is_set = len(visible) > 1
        self._old = os.environ.get(VISIBLE)
        if not self._is_set:
            return
        if "torch" in sys.modules:
            lease.release()
            raise GpuError(f"torch was imported before {lease.gpu} was leased; workers (-n 1) can still be given one")
        os.environ[VISIBLE] = lease.gpu.token

    def give_back(self) -> None:
        """Release the lease and the memory that torch keeps for later, and restore the caller's setting."""
        if self._is_set and self._old is None:
            os.environ.pop(VISIBLE, None)
        elif self._is_set:
            os.environ[VISIBLE] = str(self._old)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        self.lease.release()


def check_visible(lease: Lease, seen: int) -> None:
    """Raises GpuError when torch sees more than the leased GPU. None is possible: a torch without CUDA."""
    if seen > 1:
        raise GpuError(f"this process was given {lease.gpu} alone, and torch sees {seen} GPUs")


def in_use_mib(gpu: Gpu, query: Query = query_devices) -> int | None:
    """Memory that is not free on ``gpu``, in MiB; None where nobody tells."""
    for device in query() or ():
        if device.uuid == gpu.uuid and device.total_mib is not None and device.free_mib is not None:
            return device.total_mib - device.free_mib
    return None
