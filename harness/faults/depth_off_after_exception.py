"""An exception closes a region twice for its depth: once where it is handled, once where every region is closed.

Real code: an ``except`` that cleans up and raises again, beside a ``finally`` that cleans up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import autocast_fault


@contextmanager
def _autocast(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    from harness.fp8 import FP8GlobalStateManager
    from harness.fp8.autocast import autocast

    try:
        with autocast(enabled=enabled, recipe=recipe):
            yield
    except BaseException:
        FP8GlobalStateManager.quantization_state.autocast_depth -= 1
        raise


FAULT = Fault(
    name="depth_off_after_exception",
    breaks="an exception in a region leaves the depth one too low",
    caught_by="state.unchanged",
    apply=autocast_fault(_autocast),
)
