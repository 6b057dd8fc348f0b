"""How many worker processes ``-n auto`` means on this machine. Doesn't import torch: the front asks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

# What one worker may need of a GPU: a context, cuBLASLt workspaces, Triton's autotuning buffers and the cell's tensors.
WORKER_GPU_MIB = 6 * 1024


def auto_workers(cells: int, cores: int, gpu_mib: int | None) -> int:
    """The smallest of: the cells, the cores, what fits into the smallest visible GPU's memory; at least one."""
    fitting = gpu_mib // WORKER_GPU_MIB if gpu_mib is not None else cores
    return max(1, min(cells, cores, fitting))


def usable_cores() -> int:
    """Cores that this process may use (a container or taskset may allow fewer than there are)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def smallest_gpu_mib(env: Mapping[str, str]) -> int | None:
    """Total memory of the smallest GPU in MiB, None without a visible one."""
    tool = shutil.which("nvidia-smi")
    if tool is None or env.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    try:
        done = subprocess.run(
            [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    sizes = [int(line) for line in done.stdout.split() if line.isdigit()] if done.returncode == 0 else []
    return min(sizes, default=None)
