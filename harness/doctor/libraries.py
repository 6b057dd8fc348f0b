"""Versions of the CUDA libraries that a process has really loaded, asked of the libraries themselves."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from pathlib import Path

_MAPS = Path("/proc/self/maps")

Library = Callable[[str], ctypes.CDLL]


def loaded(name: str, maps: Path = _MAPS) -> str:
    """Path of the shared library ``lib<name>.so...`` that this process has mapped; empty when it has not."""
    try:
        text = maps.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(rf"(/\S*/lib{name}\.so[\w.]*)$", text, re.MULTILINE)
    return match[1] if match else ""


def cuda_runtime(maps: Path = _MAPS, library: Library = ctypes.CDLL) -> str:
    """Version of the loaded libcudart, as ``13.0``; empty without one.

    ``cudaRuntimeGetVersion`` gives 1000 * major + 10 * minor (CUDA Runtime API, Version Management).
    """
    path = loaded("cudart", maps)
    return _by_reference(path, "cudaRuntimeGetVersion", library) if path else ""


def cublaslt(maps: Path = _MAPS, library: Library = ctypes.CDLL) -> str:
    """Version of the loaded libcublasLt, as ``13.1.0``; empty without one.

    ``cublasLtGetVersion`` gives 10000 * major + 100 * minor + patch (cuBLAS documentation).
    """
    path = loaded("cublasLt", maps)
    if not path:
        return ""
    try:
        function = library(path).cublasLtGetVersion
    except (OSError, AttributeError):
        return ""
    function.restype = ctypes.c_size_t
    number = int(function())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def driver_cuda(library: Library = ctypes.CDLL) -> str:
    """The newest CUDA that the installed driver supports, as ``13.0``; empty without a driver.

    ``cuDriverGetVersion`` works before ``cuInit`` (CUDA Driver API, Version Management).
    """
    return _by_reference("libcuda.so.1", "cuDriverGetVersion", library)


def versions() -> Mapping[str, str]:
    """All of them, by name."""
    return {"runtime": cuda_runtime(), "cublaslt": cublaslt(), "driver": driver_cuda()}


def _by_reference(path: str, name: str, library: Library) -> str:
    number = ctypes.c_int(0)
    try:
        status = getattr(library(path), name)(ctypes.byref(number))
    except (OSError, AttributeError):
        return ""
    return f"{number.value // 1000}.{number.value % 1000 // 10}" if status == 0 and number.value else ""
