"""A layer keeps the recipe of its first call, as quantizers that are made once do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import FP8GlobalStateManager, ToyLinear

    forward, state = ToyLinear.forward, FP8GlobalStateManager.quantization_state

    def keeping(self: Any, x: torch.Tensor, is_first_microbatch: bool | None = None) -> torch.Tensor:
        if torch.compiler.is_compiling() or not state.fp8_enabled:
            return forward(self, x, is_first_microbatch)
        recipe = state.fp8_recipe
        self.first_recipe = state.fp8_recipe = getattr(self, "first_recipe", None) or recipe
        try:
            return forward(self, x, is_first_microbatch)
        finally:
            state.fp8_recipe = recipe

    with patched(ToyLinear, "forward", keeping):
        yield provider


FAULT = Fault(
    name="first_recipe_kept",
    breaks="a layer goes on with the recipe of its first call",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2620",
    where={"case": "recipe_switch", "variant": "inside"},
)
