"""The console that commands print to, and how much they say."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.console import Console

from harness.cli.option import Settings
from harness.report import Progress
from harness.report.console import QuietWhenClosed
from harness.types import CellResult


def console_for(color: str) -> Console:
    """``auto`` leaves it to rich, which honours NO_COLOR and asks whether stdout is a terminal."""
    if color == "never":
        return QuietWhenClosed(color_system=None, highlight=False)
    if color == "always":
        # Colour without the moving display: a CI log that shows colours is still no terminal.
        return QuietWhenClosed(color_system="standard", no_color=False, highlight=False)
    return QuietWhenClosed(highlight=False)


def progress_for(
    console: Console,
    total: int,
    verbosity: int,
    *,
    interactive: bool,
    word_of: Callable[[CellResult], str] = lambda result: result.verdict.value,
) -> Progress:
    """Progress on ``console``; plain lines, and none unasked, where a debugger may own the terminal.

    ``word_of``: what a result is called and counted as.
    """
    if interactive:
        plain = QuietWhenClosed(force_terminal=False, highlight=False)
        return Progress(plain, total, verbosity=verbosity, heartbeat=math.inf, word_of=word_of)
    return Progress(console, total, verbosity=verbosity, word_of=word_of)


def verbosity_of(settings: Settings) -> int:
    """-1 for -q, 1 for -v, else 0."""
    return int(settings["verbose"]) - int(settings["quiet"])
