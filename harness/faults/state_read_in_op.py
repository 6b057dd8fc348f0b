"""Operators take the recipe of whatever region is open when they run, in place of the one that they were given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.faults.fault import Fault
from harness.providers.protocol import Provider

if TYPE_CHECKING:
    from harness.fp8.recipe import Recipe


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import Float8CurrentScaling, FP8GlobalStateManager, ops

    given = ops.recipe_from_key  # type: ignore[attr-defined]  # looked up there by every operator

    def open_now(key: str) -> Recipe:
        """Nothing is open in backward, nor inside a compiled region: the state's writes come after the graph."""
        if given(key).delayed():
            return given(key)
        state = FP8GlobalStateManager.quantization_state
        return (state.fp8_recipe if state.fp8_enabled else None) or Float8CurrentScaling()

    with patched(ops, "recipe_from_key", open_now):
        yield provider


FAULT = Fault(
    name="state_read_in_op",
    breaks="operators read the region's recipe at run time, when compiled code has not entered the region yet",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    report="pytorch/pytorch#190578",
)
