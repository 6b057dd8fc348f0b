"""Each forward product starts a thread that never ends: a job dies at the system's limit, hours later.

Real code: a watcher of asynchronous work that is made for each call, and waits for a word that never comes.
"""

from __future__ import annotations

import threading
from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_WAITING: list[tuple[threading.Thread, threading.Event]] = []


def _starting(given: Given, multiply: Multiply) -> Any:
    if given.product == "fprop":
        end = threading.Event()
        thread = threading.Thread(target=end.wait, daemon=True)
        thread.start()
        _WAITING.append((thread, end))
    return multiply(given)


def _end() -> None:
    while _WAITING:
        thread, end = _WAITING.pop()
        end.set()
        thread.join()


FAULT = Fault(
    name="thread_for_each_call",
    breaks="each forward product leaves a thread waiting",
    caught_by="state.handles",
    apply=product_fault(_starting, clear=_end),
)
