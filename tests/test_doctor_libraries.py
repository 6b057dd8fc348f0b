"""Versions as the loaded libraries give them, with made-up libraries in place of CUDA's."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.doctor import libraries

MAPS = """\
7f00-7f01 r-xp 00000000 08:01 11 /opt/env/lib/python3.11/site-packages/nvidia/cu13/lib/libcudart.so.13
7f02-7f03 r-xp 00000000 08:01 12 /opt/env/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13
7f04-7f05 r-xp 00000000 08:01 13 /usr/lib/libcudart_static_helper.so
7f06-7f07 rw-p 00000000 00:00 0 [heap]
"""


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    path = tmp_path / "maps"
    path.write_text(MAPS)
    return path


def library(number: int, status: int = 0) -> Any:
    """A library whose functions say ``number``."""

    def by_reference(target: Any) -> int:
        target._obj.value = number
        return status

    def direct() -> int:
        return number

    found = SimpleNamespace(
        cudaRuntimeGetVersion=by_reference, cuDriverGetVersion=by_reference, cublasLtGetVersion=direct
    )
    return lambda path: found


def test_the_loaded_library_is_found_by_its_whole_name(maps: Path) -> None:
    assert libraries.loaded("cudart", maps).endswith("/nvidia/cu13/lib/libcudart.so.13")
    assert libraries.loaded("cublasLt", maps).endswith("libcublasLt.so.13")
    assert libraries.loaded("cudnn", maps) == ""
    assert libraries.loaded("cudart", maps.with_name("absent")) == ""


def test_versions_are_decoded(maps: Path) -> None:
    assert libraries.cuda_runtime(maps, library(12090)) == "12.9"
    assert libraries.cublaslt(maps, library(130103)) == "13.1.3"
    assert libraries.driver_cuda(library(13000)) == "13.0"


def test_what_is_not_there_or_fails_has_no_version(maps: Path) -> None:
    def missing(path: str) -> ctypes.CDLL:
        raise OSError(f"{path}: cannot open shared object file")

    empty = maps.with_name("absent")
    assert (libraries.cuda_runtime(empty, library(1)), libraries.cublaslt(empty, library(1))) == ("", "")
    assert (libraries.cuda_runtime(maps, missing), libraries.cublaslt(maps, missing)) == ("", "")
    assert libraries.driver_cuda(missing) == ""
    assert libraries.driver_cuda(library(13000, status=3)) == ""  # cuDriverGetVersion failed
    assert libraries.driver_cuda(library(0)) == ""  # the library is a stub without a driver
    assert libraries.cublaslt(maps, lambda path: SimpleNamespace()) == ""  # type: ignore[arg-type, return-value]
    assert libraries.cuda_runtime(maps, lambda path: SimpleNamespace()) == ""  # type: ignore[arg-type, return-value]
