"""A weight is quantised on its first use and kept: right until an optimizer changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import ops
    from harness.fp8.quantizer import WEIGHT, Quantized
    from harness.fp8.recipe import Recipe

    multiply = ops.multiply
    kept: dict[tuple[object, ...], Quantized] = {}

    def multiply_kept(
        product: str, recipe: Recipe, a: Quantized, b: Quantized, out_dtype: torch.dtype, weight: torch.Tensor
    ) -> torch.Tensor:
        if b.role == WEIGHT:
            b = kept.setdefault((product, recipe.key, weight.data_ptr(), b.source.shape), b)
        return multiply(product, recipe, a, b, out_dtype, weight)

    with patched(ops, "multiply", multiply_kept):
        yield provider


FAULT = Fault(
    name="weight_kept_over_steps",
    breaks="the quantised weight of the first step is used after the optimizer changed the weight",
    caught_by="numerics.tap",
    apply=_apply,
    report="NVIDIA/TransformerEngine#1047",
    where={"case": "multi_step"},
)
