"""Quantised weights are kept by the weight's own object, which compiled code makes anew for each call.

Eager code finds its weight again. Under torch.compile every call misses, quantises, and keeps one more: right results,
no recompile, and memory that grows by all weights of the model with each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness import torch_compat
from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops, quantizer

    cache: dict[Any, Any] = {}
    quantize = quantizer.quantize

    def cached(x: torch.Tensor, role: str, recipe: Any, *rest: Any) -> Any:
        if role != quantizer.WEIGHT:
            return quantize(x, role, recipe, *rest)
        key = (x, torch_compat.edits_of(x), recipe.key)  # a tensor's hash is its object's
        if key not in cache:
            cache[key] = quantize(x, role, recipe, *rest)
        return cache[key]

    with patched(ops, "quantize", cached):
        yield provider
    cache.clear()


FAULT = Fault(
    name="weights_never_evicted",
    breaks="a cache of quantised weights gains an entry with every compiled call",
    caught_by="state.memory",
    apply=_apply,
)
