"""Errors that are not the product's arithmetic: out of memory, a failed machine, a poisoned CUDA context."""

from __future__ import annotations

import re

from harness.observe.types import ErrorSeen
from harness.types import Verdict

# cuBLAS and cuDNN name the status; Transformer Engine prints cuBLAS's own text for it.
OOM = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|std::bad_alloc"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|cuBLAS Error: the resource allocation failed",
    re.IGNORECASE,
)
OOM_TYPES = ("OutOfMemoryError", "MemoryError")
# The machine failed, not the program: Xid 79 and friends, ECC, a full disk.
INFRA = re.compile(
    r"GPU is lost|fallen off the bus|\bXid\b|uncorrectable (?:ECC|NVLink)|no space left on device"
    r"|CUDA driver version is insufficient|system not yet initialized"
    r"|unable to determine the device handle|nvlink error|cudaErrorDevicesUnavailable"
    r"|CUDA-capable device\(s\) is/are busy or unavailable|no CUDA-capable device is detected",
    re.IGNORECASE,
)
# After one of these every later CUDA call of the process fails, so the worker has to go: the errors of which the CUDA
# Runtime API ("cudaError_t") says that the process must be terminated and relaunched, as cudaGetErrorString words them.
# cuBLAS and cuDNN report a failed launch by a status of their own, which names no cause: a fresh process is cheap.
STICKY = re.compile(
    r"illegal memory access|device-side assert|unspecified launch failure|misaligned address|illegal instruction"
    r"|invalid program counter|hardware stack error|launch timed out|uncorrectable (?:ECC|NVLink)|GPU is lost"
    r"|fallen off the bus|operation not supported on global/shared address space"
    r"|invalid access of peer GPU memory over nvlink|async error .* external entity outside of CUDA"
    r"|CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)|CUDNN_STATUS_EXECUTION_FAILED"
    r"|the function failed to launch on the GPU",
    re.IGNORECASE,
)


def _texts(error: ErrorSeen) -> str:
    return "\n".join(message for _, message in error.chain) or error.message


def verdict_of_error(error: ErrorSeen) -> Verdict | None:
    """``oom`` or ``infra`` when the error says so, else None: it is judged like any other exception."""
    text = _texts(error)
    types = {name for names, _ in error.chain for name in names.split("<")} | {error.type}
    if types & set(OOM_TYPES) or OOM.search(text):
        return Verdict.OOM
    return Verdict.INFRA if INFRA.search(text) else None


def poisons_worker(error: ErrorSeen) -> bool:
    """True when no later cell may run in this process."""
    return bool(STICKY.search(_texts(error)))
