"""How many worker processes ``-n auto`` means on this machine. Doesn't import torch: the front asks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.run.gpus import Gpu, visible_gpus
from harness.run.leases import WORKER_GPU_MIB, LeaseBook, capacity, directory


@dataclass(frozen=True)
class Placing:
    """How many workers a run gets, the GPUs that it may use, and what the user should know about both."""

    workers: int
    gpus: tuple[Gpu, ...] = ()
    warnings: tuple[str, ...] = ()


def place_workers(asked: int | None, cells: int, env: Mapping[str, str]) -> Placing:
    """Workers for ``cells`` cells on what ``env`` makes visible.

    Args:
        asked: what the user asked for, which is done whatever fits; None for ``-n auto``.
    """
    gpus = visible_gpus(env)
    room = gpu_room(gpus, env) if gpus else None
    if asked is None:
        return Placing(auto_workers(cells, usable_cores(), room), gpus)
    workers = min(asked, cells)
    return Placing(workers, gpus, too_many(workers, gpus))


def auto_workers(cells: int, cores: int, gpu_room: int | None) -> int:
    """The smallest of: the cells, the cores, the workers that GPUs have room for (None: no GPU); at least one."""
    return max(1, min(cells, cores, cores if gpu_room is None else gpu_room))


def gpu_room(gpus: Sequence[Gpu], env: Mapping[str, str]) -> int:
    """Workers that ``gpus`` have room for now: by free memory, and by what other runs have leased (their workers may
    not have taken their memory yet)."""
    try:
        free = LeaseBook(directory(env)).free(gpus)
    except OSError:
        free = {gpu.index: capacity(gpu) for gpu in gpus}
    return sum(min(free[gpu.index], fitting(gpu)) for gpu in gpus)


def fitting(gpu: Gpu) -> int:
    """Workers that fit into the free memory of ``gpu``, whoever holds the rest."""
    return capacity(gpu) if gpu.free_mib is None else min(capacity(gpu), gpu.free_mib // WORKER_GPU_MIB)


def too_many(workers: int, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """A warning when ``workers`` are more than fit into free GPU memory (one worker always may try)."""
    room = sum(map(fitting, gpus))
    if not gpus or workers <= max(room, 1):
        return ()
    return (f"{workers} workers were asked for and {room} fit into free GPU memory: cells may run out of it",)


def usable_cores() -> int:
    """Cores that this process may use (a container or taskset may allow fewer than there are)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
