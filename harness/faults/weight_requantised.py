"""The skip tensor is ignored: weights that were to be kept are quantised at every call."""

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

    def always(cache: Any, x: Any, weight: Any, recipe: Any, refresh: bool, skip: Any) -> Any:
        del skip
        return linear(cache, x, weight, recipe, refresh, None)

    with patched(weight_cache, "linear", always):
        yield provider


FAULT = Fault(
    name="weight_requantised",
    breaks="kept weights are quantised again at each call, whatever the skip tensor says",
    caught_by="numerics.program",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2119",
    where={"case": "microbatch", "variant": "skip_tensor"},
)
