"""A first micro-batch without gradients leaves the kept weight as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    import torch

    from harness.fp8 import weight_cache

    linear = weight_cache.linear

    def only_training(cache: Any, x: Any, weight: Any, recipe: Any, refresh: bool, skip: Any) -> Any:
        return linear(cache, x, weight, recipe, refresh and torch.is_grad_enabled(), skip)

    with patched(weight_cache, "linear", only_training):
        yield provider


FAULT = Fault(
    name="empty_weight_cache",
    breaks="without gradients a weight is not quantised, and what was kept before is used",
    caught_by="numerics.program",
    apply=_apply,
    report="NVIDIA/TransformerEngine#539",
    where={"case": "microbatch", "variant": "no_grad_first"},
)
