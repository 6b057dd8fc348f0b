"""On sm100 a nested region keeps the recipe of the region around it: there it looks for the recipe to restore first."""

from __future__ import annotations

from typing import Any

from harness.faults.entering import enter_fault, keep_outer_recipe
from harness.faults.fault import Fault


def _change(arguments: dict[str, Any], state: Any) -> None:
    from harness.fp8 import support

    if support.BELIEF.arch == "sm100":
        keep_outer_recipe(arguments, state)


FAULT = Fault(
    name="sm100_keeps_outer_recipe",
    breaks="on sm100 alone: the outer region's recipe is used inside a nested region",
    caught_by="fp8.recipe_seen",
    apply=enter_fault(_change),
    report="NVIDIA/TransformerEngine#2759",
    where={"arch": "sm100", "recipe": "mxfp8_block_scaling"},
)
