"""The input of fprop is quantised to E5M2, one bit of mantissa short.

Only fprop under per-tensor scaling: GPUs have no GEMM of two E5M2 operands and no block-scaled one with E5M2, so
elsewhere the fault would end in an error instead of numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.faults.quantising import requantised
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import formats, ops

    multiply = ops.multiply

    def coarser(product: str, recipe: Any, a: Any, *rest: Any) -> torch.Tensor:
        if product == "fprop" and recipe.name == "float8_current_scaling":
            decode = a.scale.to(torch.float32) * (formats.E4M3.max / formats.E5M2.max)
            a = requantised(dataclasses.replace(a, format="e5m2"), 1 / decode, decode)
        return multiply(product, recipe, a, *rest)

    with patched(ops, "multiply", coarser):
        yield provider


FAULT = Fault(
    name="e5m2_for_e4m3",
    breaks="E5M2 where the recipe says E4M3",
    caught_by="numerics.codes",
    apply=_apply,
)
