"""Ctrl-C told apart from a ``KeyboardInterrupt`` that a program under test raises by itself.

Both arrive as the same exception. Only the first comes through a handler of SIGINT, so that is what is watched.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class CtrlC:
    """Watches SIGINT while entered; what is done about one is left to the handler that was there.

    ``came`` is True once one was delivered, also by ``signal.raise_signal`` or ``_thread.interrupt_main``, and wherever
    that can't be known: outside of the main thread, or where code has put a handler of its own in front.
    """

    def __init__(self) -> None:
        self._came = False
        self._before: object = None
        self._own: object = None  # what is in force while entered
        self._watches = False

    @property
    def came(self) -> bool:
        return self._came or not self._watches or signal.getsignal(signal.SIGINT) != self._own

    def __enter__(self) -> CtrlC:
        self._before = signal.getsignal(signal.SIGINT)
        # Without a handler no signal becomes an exception: an ignored one does nothing, and SIG_DFL ends the process.
        self._watches = self._before is not None and threading.current_thread() is threading.main_thread()
        self._own = self._before
        if self._watches and callable(self._before):
            self._own = self._handle
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._own == self._handle and signal.getsignal(signal.SIGINT) == self._own:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]  # what signal.getsignal returned

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if callable(self._before):
            self._before(number, frame)
