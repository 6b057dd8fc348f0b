"""Backward takes the recipe of the region that is open while it runs."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault


def _change(given: Given, multiply: Multiply) -> Any:
    from harness.fp8.state import FP8GlobalStateManager

    state = FP8GlobalStateManager.quantization_state
    if given.product == "fprop" or not state.fp8_enabled or state.fp8_recipe is None:
        return multiply(given)
    return multiply(given if state.fp8_recipe.key == given.recipe.key else given.under(state.fp8_recipe))


FAULT = Fault(
    name="backward_reads_region",
    breaks="gradients are computed in the recipe of the region that backward runs in",
    caught_by="fp8.recipe_seen",
    apply=product_fault(_change),
    report="pytorch/pytorch#190578",
    where={"case": "backward_outside", "variant": "other_region"},
)
