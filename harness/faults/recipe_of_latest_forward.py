"""A layer keeps the recipe of its latest forward, and backward uses that one."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_LATEST: dict[int, Any] = {}  # by the address of the layer's weight


def _change(given: Given, multiply: Multiply) -> Any:
    layer = given.weight.data_ptr()
    if given.product == "fprop":
        _LATEST[layer] = given.recipe
    latest = _LATEST.get(layer, given.recipe)
    return multiply(given if latest.key == given.recipe.key else given.under(latest))


FAULT = Fault(
    name="recipe_of_latest_forward",
    breaks="gradients are computed in the recipe of the layer's latest forward, not of their own",
    caught_by="fp8.recipe_seen",
    apply=product_fault(_change, clear=_LATEST.clear),
    where={"case": "backward_outside", "variant": "overtaken"},
)
