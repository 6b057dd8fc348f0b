"""The console that reports are printed to."""

from __future__ import annotations

import contextlib
import os

from rich.console import Console


class QuietWhenClosed(Console):
    """A console that falls silent when whoever read it is gone (``runner.py ... | head``).

    rich's own ends the process there, with exit code 1: a run would be lost, and its exit code would say "red".
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # What Python still holds in its buffer would fail again when the process ends.
        with contextlib.suppress(OSError):  # a stream without a descriptor
            target = self.file.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, target)
            os.close(nowhere)
