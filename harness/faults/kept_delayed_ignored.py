"""``is_first_microbatch`` is accepted under delayed scaling and ignored: the weight is quantised on each call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider

if TYPE_CHECKING:
    import torch

    from harness.fp8 import ToyLinear
    from harness.fp8.recipe import Recipe


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    forward = ToyLinear._forward_cached

    def ignoring(self: ToyLinear, flat: torch.Tensor, recipe: Recipe, is_first_microbatch: bool) -> torch.Tensor:
        if recipe.delayed():
            return self._forward_delayed(flat, recipe)
        return forward(self, flat, recipe, is_first_microbatch)

    with patched(ToyLinear, "_forward_cached", ignoring):
        yield provider


FAULT = Fault(
    name="kept_delayed_ignored",
    breaks="is_first_microbatch under delayed scaling is taken without a word",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "microbatch", "variant": "flag"},
)
