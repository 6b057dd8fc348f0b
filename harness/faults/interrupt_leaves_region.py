"""The region's exit handles ``Exception``: Ctrl-C in a notebook (KeyboardInterrupt) leaves FP8 on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import autocast_fault


@contextmanager
def _autocast(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    from harness.fp8 import FP8GlobalStateManager

    outer = FP8GlobalStateManager.get_autocast_state()

    def leave() -> None:
        FP8GlobalStateManager.set_autocast_state(outer)
        FP8GlobalStateManager.autocast_exit(enabled, _graph=False)

    FP8GlobalStateManager.autocast_enter(enabled=enabled, fp8_recipe=recipe)
    try:
        yield
    except Exception:
        leave()
        raise
    else:
        leave()


FAULT = Fault(
    name="interrupt_leaves_region",
    breaks="what is no Exception (KeyboardInterrupt, GeneratorExit) leaves a region in force",
    caught_by="state.unchanged",
    apply=autocast_fault(_autocast),
    where={"case": "exception", "variant": "interrupted", "fullgraph": False},
)
