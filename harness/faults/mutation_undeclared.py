"""The operator that refreshes a kept weight doesn't say that it writes: compiled code, which has no use for its result,
leaves the call out, and weights stay as they were at first.

Real code: a custom operator registered with ``mutates_args=()`` whose kernel writes in place. Eager code is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@torch.library.custom_op("fp8fault::refresh", mutates_args=())
def _refresh(weight: torch.Tensor, kept: list[torch.Tensor], key: str) -> None:
    from harness.fp8 import weight_cache
    from harness.fp8.key import RecipeKey

    weight_cache._refresh_weight(weight, kept, None, RecipeKey(key))


@_refresh.register_fake
def _(weight: torch.Tensor, kept: list[torch.Tensor], key: str) -> None:
    return None


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import weight_cache

    linear = weight_cache.linear

    def refreshing(cache: Any, x: Any, weight: Any, recipe: Any, refresh: bool, skip: Any) -> Any:
        if refresh and skip is None:
            _refresh(weight.detach(), cache.tensors, recipe.key)
            refresh = False
        return linear(cache, x, weight, recipe, refresh, skip)

    with patched(weight_cache, "linear", refreshing):
        yield provider


FAULT = Fault(
    name="mutation_undeclared",
    breaks="compiled code drops a call whose only effect is an undeclared write: kept weights are never refreshed",
    caught_by="numerics.eager",
    apply=_apply,
    where={"case": "microbatch", "variant": "flag"},
)
