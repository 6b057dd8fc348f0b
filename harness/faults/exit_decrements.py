"""Leaving a region counts the depth down instead of putting back the depth of its entry: after a reset inside, -1.

Transformer Engine's own exit counts down like this.
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

    outer = FP8GlobalStateManager.get_autocast_state()
    FP8GlobalStateManager.autocast_enter(enabled=enabled, fp8_recipe=recipe)
    try:
        yield
    finally:
        depth = FP8GlobalStateManager.quantization_state.autocast_depth - 1
        FP8GlobalStateManager.set_autocast_state((*outer[:-1], depth))
        FP8GlobalStateManager.autocast_exit(enabled, _graph=False)


FAULT = Fault(
    name="exit_decrements",
    breaks="after a reset in an open region its exit leaves a depth of -1",
    caught_by="state.unchanged",
    apply=autocast_fault(_autocast),
    report="NVIDIA/TransformerEngine#2759",
    where={"case": "reset_between_calls", "variant": "inside"},
)
