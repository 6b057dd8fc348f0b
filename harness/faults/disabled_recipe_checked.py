"""A disabled region refuses a recipe that can't run, though it won't."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import delayed, support
    from harness.fp8.state import FP8GlobalStateManager

    enter = FP8GlobalStateManager.autocast_enter

    def checking(**arguments: Any) -> None:
        recipe = arguments["fp8_recipe"]
        if recipe is not None:
            delayed.refuse_under_compile(recipe)
            support.require(recipe, support.current_device())
        enter(**arguments)

    with patched(FP8GlobalStateManager, "autocast_enter", staticmethod(checking)):
        yield provider


FAULT = Fault(
    name="disabled_recipe_checked",
    breaks="autocast(enabled=False, recipe=DelayedScaling()) is refused under compile",
    caught_by="case.facts",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2759",
    where={"case": "disabled", "variant": "given"},
)
