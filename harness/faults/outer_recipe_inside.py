"""A nested region keeps the recipe of the region around it."""

from __future__ import annotations

from typing import Any

from harness.faults.entering import enter_fault, keep_outer_recipe
from harness.faults.fault import Fault
from harness.faults.seams import BOTH, by_provider, te_region_fault


def _te_region(autocast: Any, manager: Any) -> Any:
    def inheriting(enabled: bool = True, recipe: Any = None) -> Any:
        state = manager.quantization_state
        inside = enabled and state.autocast_depth > 0 and state.fp8_recipe is not None
        return autocast(enabled=enabled, recipe=state.fp8_recipe if inside else recipe)

    return inheriting


FAULT = Fault(
    name="outer_recipe_inside",
    breaks="the outer region's recipe is used inside a nested region",
    caught_by="fp8.recipe_seen",
    apply=by_provider(enter_fault(keep_outer_recipe), te_region_fault(_te_region)),
    report="NVIDIA/TransformerEngine#2759",
    providers=BOTH,
)
