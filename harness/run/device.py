"""The state of this process's GPU, as CUDA itself tells it."""

from __future__ import annotations

import torch


def _is_initialized() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def lost_context() -> str:
    """CUDA's words when no later call of this process can succeed, else empty.

    Kernels run behind the program's back: an error of one that nobody waited for shows here, and so does every earlier
    one after which the context is lost, whatever text it was reported with.
    """
    if not _is_initialized():
        return ""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:  # torch.AcceleratorError is one
        return str(error).strip().partition("\n")[0]
    return ""


def peak_mib() -> int:
    """The most memory that torch's allocator held, in MiB; 0 without a usable GPU."""
    if not _is_initialized():
        return 0
    try:
        return torch.cuda.max_memory_reserved(0) >> 20
    except RuntimeError:  # the context is lost
        return 0


def free_cached() -> None:
    """Give cached memory back to the GPU, where other workers may need it."""
    if _is_initialized():
        torch.cuda.empty_cache()
