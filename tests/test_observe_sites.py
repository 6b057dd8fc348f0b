"""Which files are the user's, and how places are written."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest
import torch

import harness.fp8
from harness.observe import sites

REPO = Path(sites.__file__).parents[2]


@pytest.mark.parametrize(
    "path",
    [
        REPO / "cases" / "toy_linear.py",
        REPO / "tests" / "test_x.py",
        Path(harness.fp8.__file__),
        REPO / "harness" / "providers" / "reference.py",
        Path("/home/somebody/model.py"),
        Path(torch.__file__).parents[1] / "transformer_engine" / "pytorch" / "module" / "linear.py",
    ],
    ids=lambda path: path.name,
)
def test_programs_and_libraries_under_test_are_user_files(path: Path) -> None:
    assert sites.is_user_file(str(path))


@pytest.mark.parametrize(
    "path",
    [
        torch.__file__,
        contextlib.__file__,
        pytest.__file__,
        str(Path(torch.__file__).parents[1] / "_pytest" / "python.py"),
        str(Path(torch.__file__).parents[1] / "execnet" / "gateway_base.py"),
        str(REPO / "runner.py"),
        sites.__file__,
        str(REPO / "harness" / "run" / "execute.py"),
        "<string>",
        "<eval_with_key>.1",
        "",
    ],
)
def test_torch_python_and_the_harness_are_not(path: str) -> None:
    assert not sites.is_user_file(path)


def test_short_path() -> None:
    assert sites.short_path(str(REPO / "cases" / "toy.py")) == "cases/toy.py"
    assert sites.short_path(torch.__file__) == "torch/__init__.py"
    assert sites.short_path(os.sep + os.path.join("somewhere", "else", "deep", "x.py")) == "deep/x.py"
    assert sites.short_path("<string>") == "<string>"


def test_innermost_user_frame_wins() -> None:
    frames = [(str(REPO / "cases" / "a.py"), 3), (str(REPO / "cases" / "b.py"), None), (torch.__file__, 9)]
    assert sites.innermost(frames) == "cases/b.py:0"
    assert sites.innermost([(torch.__file__, 9)]) == ""


def test_frames_of_a_traceback() -> None:
    try:
        raise ValueError
    except ValueError:
        frames = list(sites.frames_of(sys.exc_info()[2]))
    assert [Path(name).name for name, _ in frames] == ["test_observe_sites.py"]


def test_noise_is_removed_and_text_kept() -> None:
    text = f"<function f at 0x7f0012345678> in {REPO}/cases/toy.py, mask 0x1f, a/b.py"
    assert sites.without_noise(text) == "<function f at 0x...> in cases/toy.py, mask 0x1f, a/b.py"
