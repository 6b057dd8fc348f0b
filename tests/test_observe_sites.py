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


USERS = "/home/somebody/work"
LAYER = str(Path(harness.fp8.__file__).parent / "linear.py")
OWN = (f"{USERS}/model.py", 3)


def test_the_users_own_frame_comes_before_deeper_ones_of_the_library() -> None:
    stack = [(str(REPO / "cases" / "target.py"), 1), OWN, (f"{USERS}/.venv/lib/site-packages/library/linear.py", 5)]
    assert sites.innermost([*stack, (LAYER, 9)]) == "harness/fp8/linear.py:9"
    with sites.own_code([USERS]):
        assert sites.innermost([*stack, (LAYER, 9)]) == "work/model.py:3"
        assert sites.innermost([(LAYER, 9)], stack) == "work/model.py:3", "another stack has one"
        assert sites.innermost([(f"{USERS}/part/layers.py", 7), (LAYER, 9)]) == "part/layers.py:7"
        assert sites.innermost([(LAYER, 9)], [(torch.__file__, 2)]) == "harness/fp8/linear.py:9", "there is none"
    assert sites.innermost([*stack, (LAYER, 9)]) == "harness/fp8/linear.py:9"


def test_own_code_is_a_file_or_what_lies_below_a_directory_and_nothing_that_is_installed() -> None:
    with sites.own_code([USERS, f"{USERS}2/model.py"]):
        assert sites.is_own_file(f"{USERS}2/model.py")
        assert not sites.is_own_file(f"{USERS}2/other.py")
        assert not sites.is_own_file(f"{USERS}3/model.py")
        assert not sites.is_own_file(f"{USERS}/.venv/lib/python3.11/site-packages/library/x.py")
    with sites.own_code([str(REPO)]):  # the user's file stands in the repository
        assert sites.is_own_file(str(REPO / "model.py"))
        assert not any(map(sites.is_own_file, (LAYER, str(REPO / "cases" / "target.py"), str(REPO / "runner.py"))))
    installed = str(Path(torch.__file__).parents[1] / "mine")
    with sites.own_code([installed]):
        assert sites.is_own_file(installed + "/model.py")
        assert not sites.is_own_file(torch.__file__)


def test_own_code_ends_with_an_exception_too() -> None:
    with pytest.raises(ZeroDivisionError), sites.own_code([USERS]):
        raise ZeroDivisionError
    assert not sites.is_own_file(OWN[0])


def test_frames_of_a_traceback() -> None:
    try:
        raise ValueError
    except ValueError:
        frames = list(sites.frames_of(sys.exc_info()[2]))
    assert [Path(name).name for name, _ in frames] == ["test_observe_sites.py"]


def test_noise_is_removed_and_text_kept() -> None:
    text = f"<function f at 0x7f0012345678> in {REPO}/cases/toy.py, mask 0x1f, a/b.py"
    assert sites.without_noise(text) == "<function f at 0x...> in cases/toy.py, mask 0x1f, a/b.py"
