"""The layer asks for the recipe of a region around it by a function whose result torch.compile takes for constant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, by_provider
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import FP8GlobalStateManager, ToyLinear
    from harness.fp8.key import RecipeKey
    from harness.fp8.tracing import run_while_tracing

    guarded = ToyLinear.forward

    @run_while_tracing
    def key_around() -> str:
        """Empty outside of any region, and while one is traced: what that one writes is not there yet."""
        recipe = FP8GlobalStateManager.quantization_state.fp8_recipe
        return "" if recipe is None or recipe.delayed() else recipe.key

    def unguarded(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        key = key_around()
        if not key:
            return guarded(self, x)
        y: torch.Tensor = torch.ops.fp8ref.linear(x, self.weight, None, None, RecipeKey(key))
        return y if self.bias is None else y + self.bias

    with patched(ToyLinear, "forward", unguarded):
        yield provider


@contextmanager
def _apply_to_te(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.tracing import run_while_tracing
    from harness.providers import te_recipes, te_stack
    from harness.providers.te_key import TERecipeKey
    from harness.providers.te_linear import TELinear

    guarded, manager = TELinear.forward, te_stack.module("pytorch.quantization").FP8GlobalStateManager

    @run_while_tracing
    def text_around() -> str:
        """As ``key_around`` above."""
        state = manager.quantization_state
        recipe = state.fp8_recipe
        return "" if not state.fp8_enabled or recipe is None or recipe.delayed() else te_recipes.note(recipe)

    def unguarded(self: TELinear, x: torch.Tensor) -> torch.Tensor:
        text = text_around()
        if not text:
            return guarded(self, x)
        y: torch.Tensor = torch.ops.fp8te.linear(x, self.weight, TERecipeKey(text))
        return y if self.bias is None else y + self.bias

    with patched(TELinear, "forward", unguarded):
        yield provider


FAULT = Fault(
    name="recipe_without_guard",
    breaks="no guard on the recipe of the region around compiled code: one recipe's graph runs under another",
    caught_by="fp8.recipe_seen",
    apply=by_provider(_apply, _apply_to_te),
    report="pytorch/pytorch#128437",
    where={"case": "autocast_outside"},
    providers=BOTH,
)
