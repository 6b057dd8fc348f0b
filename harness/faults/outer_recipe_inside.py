"""A nested region keeps the recipe of the region around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, by_provider, te_region_fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.state import FP8GlobalStateManager

    enter = FP8GlobalStateManager.autocast_enter

    def enter_with_outer(**arguments: Any) -> None:
        state = FP8GlobalStateManager.quantization_state
        if state.autocast_depth > 0 and arguments["enabled"] and state.fp8_recipe is not None:
            arguments["fp8_recipe"] = state.fp8_recipe
        enter(**arguments)

    with patched(FP8GlobalStateManager, "autocast_enter", staticmethod(enter_with_outer)):
        yield provider


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
    apply=by_provider(_apply, te_region_fault(_te_region)),
    report="NVIDIA/TransformerEngine#2759",
    providers=BOTH,
)
