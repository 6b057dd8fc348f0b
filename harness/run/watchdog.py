"""Stacks for what kills a process: a hang ends it after a time-out, a fatal signal at once, and both leave text.

Python's faulthandler does the work: its watchdog is a thread of C code, so it also ends a process that hangs in C++
with the GIL held, and its signal handler runs without Python.
"""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path


class Watchdog:
    """Owns the process's stack file; at any time the file holds the stacks of the current cell only."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file can't be made."""
        # faulthandler writes to the descriptor from a signal handler: the object must live as long as the process.
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        faulthandler.enable(file=self._file, all_threads=True)

    def arm(self, seconds: float | None) -> None:
        """Start the clock of a cell, and forget what the last one left. None: no limit (a debugger)."""
        os.ftruncate(self._file.fileno(), 0)
        self._file.seek(0)
        faulthandler.enable(file=self._file, all_threads=True)  # a library under test may have taken it away
        if seconds is not None:
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._file)

    def disarm(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def close(self) -> None:
        self.disarm()
        faulthandler.disable()
        self._file.close()
