"""Backward quantises in the recipe of the innermost region of the forward, whichever region a layer ran in."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_INNER: dict[str, Any] = {}


def _change(given: Given, multiply: Multiply) -> Any:
    if given.product == "fprop":
        # What runs first is in the outer region; the recipe that comes after it is the inner region's.
        outer = _INNER.setdefault("outer", given.recipe)
        if given.recipe != outer:
            _INNER["inner"] = given.recipe
        return multiply(given)
    return multiply(given.under(_INNER.get("inner", given.recipe)))


FAULT = Fault(
    name="inner_recipe_in_backward",
    breaks="the inner region's recipe is used in the backward of the outer region's layers",
    caught_by="fp8.recipe_seen",
    apply=product_fault(_change, clear=_INNER.clear),
    report="NVIDIA/TransformerEngine#2759",
)
