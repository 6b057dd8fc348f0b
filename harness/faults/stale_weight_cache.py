"""A kept weight is never quantised again: the first micro-batch of a window is not told from the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import weight_cache

    linear = weight_cache.linear

    def never(cache: Any, x: Any, weight: Any, recipe: Any, refresh: bool, skip: Any) -> Any:
        del refresh
        return linear(cache, x, weight, recipe, False, skip)

    with patched(weight_cache, "linear", never):
        yield provider


FAULT = Fault(
    name="stale_weight_cache",
    breaks="quantised weights are kept for ever",
    caught_by="numerics.codes",
    apply=_apply,
    report="NVIDIA/Megatron-LM#5642",
    where={"case": "microbatch", "variant": "accumulated"},
)
