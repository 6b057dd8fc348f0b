"""What is no recipe of the library's is taken for the default one, without a word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import FP8GlobalStateManager
    from harness.fp8.recipe import Float8CurrentScaling, Recipe

    enter = FP8GlobalStateManager.autocast_enter

    def lenient(
        cls: Any,
        enabled: bool = False,
        calibrating: bool = False,
        fp8_recipe: Any = None,
        fp8_group: Any = None,
        _graph: bool = False,
    ) -> None:
        if fp8_recipe is not None and not isinstance(fp8_recipe, Recipe):
            fp8_recipe = Float8CurrentScaling()
        enter(enabled, calibrating, fp8_recipe, fp8_group, _graph)

    with patched(FP8GlobalStateManager, "autocast_enter", classmethod(lenient)):
        yield provider


FAULT = Fault(
    name="foreign_recipe_taken",
    breaks="an object that is no recipe opens a region",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "recipe_switch", "variant": "inside"},
)
