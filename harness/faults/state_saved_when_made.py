"""A region takes note of the outer state when its object is made, not when it is entered: its exit puts back that."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import autocast_fault
from harness.fp8.state import FP8GlobalStateManager


class _Region:
    def __init__(self, enabled: bool = True, recipe: Any = None) -> None:
        self.enabled, self.recipe = enabled, recipe
        self.outer = FP8GlobalStateManager.get_autocast_state()

    def __enter__(self) -> None:
        FP8GlobalStateManager.autocast_enter(enabled=self.enabled, fp8_recipe=self.recipe)

    def __exit__(self, *error: object) -> None:
        FP8GlobalStateManager.set_autocast_state(self.outer)
        FP8GlobalStateManager.autocast_exit(self.enabled, _graph=False)


FAULT = Fault(
    name="state_saved_when_made",
    breaks="a region that is made in one place and entered in another restores the wrong state",
    caught_by="fp8.recipe_seen",
    apply=autocast_fault(_Region),
    report="NVIDIA/TransformerEngine#187",
    where={"case": "hoisted", "variant": "late"},
)
