"""Settings of every test run."""

from __future__ import annotations

import signal
import threading


def pytest_configure() -> None:
    """A shell starts what it puts in the background with SIGINT ignored, and the tests of Ctrl-C would see none."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
