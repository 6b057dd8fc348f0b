"""A weight that is kept is quantised by a quantiser that was not told of the recipe's scales: float32 numbers, where a
fresh weight's are powers of two.

Real code: keeping has a quantiser of its own, made without one of the recipe's fields (a cause of the kind of
NVIDIA/TransformerEngine#2852).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import weight_cache
    from harness.fp8.recipe import Float8BlockScaling

    quantized = weight_cache._quantized_bytes

    def untold(weight: Any, recipe: Any) -> Any:
        if isinstance(recipe, Float8BlockScaling):
            recipe = dataclasses.replace(recipe, use_f32_scales=True)
        return quantized(weight, recipe)

    with patched(weight_cache, "_quantized_bytes", untold):
        yield provider


FAULT = Fault(
    name="kept_weight_other_scales",
    breaks="block scaling computes something else where weights are kept",
    caught_by="case.facts",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2852",
    where={"case": "microbatch", "variant": "flag", "recipe": "float8_block_scaling"},
)
