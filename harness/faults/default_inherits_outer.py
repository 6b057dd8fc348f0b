"""A region that names no recipe takes over that of the region around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.state import FP8GlobalStateManager

    enter = FP8GlobalStateManager.autocast_enter

    def inheriting(**arguments: Any) -> None:
        state = FP8GlobalStateManager.quantization_state
        if arguments["enabled"] and arguments["fp8_recipe"] is None:
            arguments["fp8_recipe"] = state.fp8_recipe
        enter(**arguments)

    with patched(FP8GlobalStateManager, "autocast_enter", staticmethod(inheriting)):
        yield provider


FAULT = Fault(
    name="default_inherits_outer",
    breaks="a region without a recipe runs in its outer region's, not in the default",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    where={"case": "default_recipe", "variant": "inside"},
)
