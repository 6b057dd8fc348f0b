"""Recipes carry something unique, and the layer reads it: equal recipes are told apart, so each call recompiles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider
from harness.types import Spec


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import FP8GlobalStateManager, ToyLinear

    make, forward, serial = provider.recipe, ToyLinear.forward, itertools.count()

    def unique(spec: Spec) -> Any:
        recipe = make(spec)
        object.__setattr__(recipe, "serial", f"recipe {next(serial)}")
        return recipe

    def reading(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        recipe: Any = FP8GlobalStateManager.quantization_state.fp8_recipe
        if recipe is not None and recipe.serial == "":
            return x
        return forward(self, x)

    with patched(provider, "recipe", unique), patched(ToyLinear, "forward", reading):
        yield provider


FAULT = Fault(
    name="recipe_by_identity",
    breaks="equal recipes don't share a graph",
    caught_by="compile.steady",
    apply=_apply,
    where={"fullgraph": False},
)
