"""Where in the user's code something happened: which files count, and how they are written down.

A site is the innermost frame that belongs to the program or to the library under test. Torch, the standard library, the
test runner and the harness's own machinery are none of these. ``harness/fp8``, ``harness/providers`` and
``harness/faults`` are products under test and do count.

Of a cell that runs a program of the user's own (``own_code``), it is the innermost frame of *that* code, wherever there
is one: the user can change it, and a layer that refuses its shape stands in the stack below it.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

_HARNESS = str(Path(__file__).resolve().parents[1]) + os.sep
_FRONT = str(Path(_HARNESS).parent / "runner.py")
_PRODUCTS = tuple(_HARNESS + name + os.sep for name in ("fp8", "providers", "faults"))
_RUNNERS = re.compile(r"[/\\]site-packages[/\\](_pytest|pluggy|pytest|xdist|execnet)[/\\.]")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_FRAME_LINE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)


_TORCH = str(Path(torch.__file__).resolve().parent) + os.sep
_STDLIB = tuple(str(Path(path)) + os.sep for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


def is_user_file(filename: str) -> bool:
    """True for a file of the program or of the library under test."""
    if not filename or filename.startswith("<"):
        return False
    if filename.startswith(_HARNESS):
        return filename.startswith(_PRODUCTS)
    if filename.startswith(_TORCH) or filename == _FRONT:
        return False
    if "site-packages" in filename:  # lies inside the standard library's directory in most layouts
        return not _RUNNERS.search(filename)
    return not filename.startswith(_STDLIB)


_OURS = tuple(str(Path(_HARNESS).parent) + os.sep + name + os.sep for name in ("harness", "cases"))
# Files, and directories with what lies below them. One cell runs at a time; what describes an error may be a thread.
_own: tuple[str, ...] = ()


@contextmanager
def own_code(paths: Iterable[str]) -> Iterator[None]:
    """Meanwhile sites are those of the files ``paths``, and of the directories ``paths`` and what lies below them,
    wherever a stack has such a frame."""
    global _own
    before, _own = _own, tuple(paths)
    try:
        yield
    finally:
        _own = before


def is_own_file(filename: str) -> bool:
    """True for a file of the code named by :func:`own_code`: not of the harness and the cases, nor of what is
    installed, even where they lie below it (a virtual environment beside the user's file)."""
    for path in _own:
        if filename == path or filename.startswith(path.rstrip(os.sep) + os.sep):
            installed = "site-packages" in filename[len(path) :] or "dist-packages" in filename[len(path) :]
            return is_user_file(filename) and not installed and not filename.startswith(_OURS)
    return False


def short_path(filename: str) -> str:
    """``filename`` without what differs between machines: relative to the repository, the working directory or
    site-packages, in this order; otherwise the last two parts."""
    if filename.startswith("<"):
        return filename
    for root in (str(Path(_HARNESS).parent) + os.sep, os.getcwd() + os.sep):
        if filename.startswith(root) and "site-packages" not in filename:
            return Path(filename[len(root) :]).as_posix()
    _, found, rest = filename.rpartition("site-packages" + os.sep)
    if found:
        return Path(rest).as_posix()
    return "/".join(Path(filename).parts[-2:])


def site(filename: str, line: int | None) -> str:
    """``file:line`` as it stands in reports."""
    return f"{short_path(filename)}:{line or 0}"


def innermost(*stacks: Iterable[tuple[str, int | None]]) -> str:
    """The site of the last frame (they stand outermost first) of the user's own code in the first stack that has one;
    without any, of the last frame of the program or the library under test, likewise; or ""."""
    kept: Sequence[Sequence[tuple[str, int | None]]] = [list(stack) for stack in stacks]
    for counts in (is_own_file, is_user_file):
        for stack in kept:
            for filename, line in reversed(stack):
                if counts(filename):
                    return site(filename, line)
    return ""


def frames_in_text(text: str) -> Iterator[tuple[str, int]]:
    """(file, line) of each ``File "...", line N`` in a printed traceback."""
    for match in _FRAME_LINE.finditer(text):
        yield match["file"], int(match["line"])


def frames_of(traceback: Any) -> Iterator[tuple[str, int]]:
    """(file, line) of each frame of a traceback object, outermost first."""
    while traceback is not None:
        yield traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next


def without_noise(text: str) -> str:
    """``text`` with object addresses masked and paths shortened, so that two machines print the same."""
    text = _ADDRESS.sub("0x...", text)
    return re.sub(r"(?<![\w.])/(?:[\w.+\-]+/)+[\w.+\-]+\.py\b", lambda match: short_path(match[0]), text)
