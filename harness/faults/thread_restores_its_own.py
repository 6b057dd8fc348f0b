"""The states to go back to are kept for each thread, beside a state in force that is the process's: leaving a region in
another thread puts back what that thread began with, no FP8, where this one's region is open.

Real code: a stack in ``threading.local`` that was to make regions safe for threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import autocast_fault

_OFF = (False, False, None, None, False, False, 0)
_KEPT = threading.local()


@contextmanager
def _autocast(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    from harness.fp8 import FP8GlobalStateManager

    stack = _KEPT.__dict__.setdefault("stack", [_OFF])
    FP8GlobalStateManager.autocast_enter(enabled=enabled, fp8_recipe=recipe)
    stack.append(FP8GlobalStateManager.get_autocast_state())
    try:
        yield
    finally:
        stack.pop()
        FP8GlobalStateManager.set_autocast_state(stack[-1])
        FP8GlobalStateManager.autocast_exit(enabled, _graph=False)


FAULT = Fault(
    name="thread_restores_its_own",
    breaks="a region that another thread leaves switches the open region off",
    caught_by="fp8.recipe_seen",
    apply=autocast_fault(_autocast),
    where={"case": "threads", "variant": "own_region"},
)
