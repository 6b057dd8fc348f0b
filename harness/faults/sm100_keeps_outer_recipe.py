"""On sm100 a nested region keeps the recipe of the region around it: there it looks for the recipe to restore first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import support
    from harness.fp8.state import FP8GlobalStateManager

    enter = FP8GlobalStateManager.autocast_enter

    def enter_with_outer(**arguments: Any) -> None:
        state = FP8GlobalStateManager.quantization_state
        inside = state.autocast_depth > 0 and arguments["enabled"] and state.fp8_recipe is not None
        if inside and support.BELIEF.arch == "sm100":
            arguments["fp8_recipe"] = state.fp8_recipe
        enter(**arguments)

    with patched(FP8GlobalStateManager, "autocast_enter", staticmethod(enter_with_outer)):
        yield provider


FAULT = Fault(
    name="sm100_keeps_outer_recipe",
    breaks="on sm100 alone: the outer region's recipe is used inside a nested region",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2759",
    where={"arch": "sm100", "recipe": "mxfp8_block_scaling"},
)
