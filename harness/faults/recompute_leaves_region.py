"""After a recompute the region of its forward stays open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.checkpoint import _Recompute
    from harness.fp8.state import FP8GlobalStateManager

    leave = _Recompute.__exit__

    def leave_open(self: Any, *error: object) -> None:
        leave(self, *error)
        FP8GlobalStateManager.set_autocast_state(self._region)

    with patched(_Recompute, "__exit__", leave_open):
        yield provider
    FP8GlobalStateManager.reset()


FAULT = Fault(
    name="recompute_leaves_region",
    breaks="FP8 stays enabled after a recompute",
    caught_by="state.unchanged",
    apply=_apply,
    report="NVIDIA/TransformerEngine#3213",
    where={"case": "checkpoint", "variant": "own_around"},
)
