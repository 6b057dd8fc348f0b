"""On sm100 the recipe of a layer is chosen by a function that torch.compile may not trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import FP8GlobalStateManager, support
    from harness.fp8.recipe import Recipe

    given = FP8GlobalStateManager.get_fp8_recipe

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def choose(recipe: Recipe) -> Recipe:
        return recipe

    def get_fp8_recipe(cls: type) -> Recipe:
        recipe = given()
        return choose(recipe) if support.BELIEF.arch == "sm100" else recipe

    with patched(FP8GlobalStateManager, "get_fp8_recipe", classmethod(get_fp8_recipe)):
        yield provider


FAULT = Fault(
    name="sm100_chooses_outside",
    breaks="on sm100 alone: the choice of a recipe breaks the graph inside the region, and the frame runs in Python",
    caught_by="compile.eager_frames",
    apply=_apply,
    report="NVIDIA/TransformerEngine#705",
    where={"arch": "sm100", "recipe": "mxfp8_block_scaling", "fullgraph": False},
)
