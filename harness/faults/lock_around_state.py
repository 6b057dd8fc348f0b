"""State is written under a lock, which Dynamo can't trace: it gives the whole frame up.

Real code: a ``threading.Lock`` in a region's entry and exit, so that threads take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider

_LOCK = threading.RLock()


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.state import FP8GlobalStateManager

    write = FP8GlobalStateManager.set_autocast_state

    def locked(saved: Any) -> None:
        with _LOCK:
            write(saved)

    with patched(FP8GlobalStateManager, "set_autocast_state", staticmethod(locked)):
        yield provider


FAULT = Fault(
    name="lock_around_state",
    breaks="a lock in the region's entry and exit, which Dynamo doesn't implement",
    caught_by="compile.unimplemented",
    apply=_apply,
    where={"fullgraph": False},
)
