"""What the options of the commands that measure faults take, and what they refuse."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.detection import readers


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (readers.positive, "1", 1),
        (readers.seed, "0", 0),
        (readers.seed, "2147483647", 2147483647),
        (readers.seeds, "3,1,3", (3, 1)),
        (readers.seconds, "0.5", 0.5),
        (readers.shapes, "128x256x128,64x64x64,128x256x128", ("128x256x128", "64x64x64")),
        (readers.faults, "leaky_exit,hang,leaky_exit", ("leaky_exit", "hang")),
        (readers.file, "new.jsonl", Path("new.jsonl")),
        (readers.there, __file__, Path(__file__)),
        (readers.directory, "new", Path("new")),
    ],
)
def test_what_is_taken(read: Callable[[str], Any], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (readers.positive, ("", "0", "-1", "1.0", "x", "+1", " 1", "1_0", "\u0661", "9" * 30)),
        (readers.seed, ("", "-1", "2147483648", "0x1")),
        (readers.seeds, ("", ",", "1,", "1,x", "1;2")),
        (readers.seconds, ("", "0", "-1", "nan", "inf", "1e6", "soon")),
        (readers.shapes, ("", "1x2", "1x2x3x4", "0x1x1", "axbxc", "1x1x1,")),
        (readers.faults, ("", "leaky_exit,", "LEAKY")),
        (readers.file, ("", " ", ".", "a\0b")),
        (readers.there, ("nowhere", ".")),
        (readers.directory, ("", __file__, "a\0b")),
    ],
)
def test_what_is_refused(read: Callable[[str], Any], texts: tuple[str, ...]) -> None:
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError):
            read(text)
