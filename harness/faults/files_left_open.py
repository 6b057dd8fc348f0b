"""Each product opens a file and never closes it: a job dies at the system's limit, hours later.

Real code: a tuning table that is looked up on disk, by a path that forgets to close it.
"""

from __future__ import annotations

import os
from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_OPEN: list[int] = []


def _opening(given: Given, multiply: Multiply) -> Any:
    _OPEN.append(os.open(os.devnull, os.O_RDONLY))
    return multiply(given)


def _close() -> None:
    while _OPEN:
        os.close(_OPEN.pop())


FAULT = Fault(
    name="files_left_open",
    breaks="each product leaves a file open",
    caught_by="state.handles",
    apply=product_fault(_opening, clear=_close),
)
