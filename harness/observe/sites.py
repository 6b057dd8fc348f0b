"""Where in the user's code something happened: which files count, and how they are written down.

A site is the innermost frame that belongs to the program or to the library under test. Torch, the standard library, the
test runner and the harness's own machinery are none of these. ``harness/fp8``, ``harness/providers`` and
``harness/faults`` are products under test and do count.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
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


def innermost(frames: Iterable[tuple[str, int | None]]) -> str:
    """The site of the last user frame of ``frames`` (outermost first), or "" when there is none."""
    found = ""
    for filename, line in frames:
        if is_user_file(filename):
            found = site(filename, line)
    return found


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
