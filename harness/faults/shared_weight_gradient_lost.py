"""A weight that is used twice gets one use's gradient twice, as from a buffer that is filled before it is added."""

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
    from harness.fp8.quantizer import Quantized
    from harness.fp8.recipe import Recipe

    multiply = ops.multiply
    buffers: dict[int, torch.Tensor] = {}

    def multiply_into_buffer(
        product: str, recipe: Recipe, a: Quantized, b: Quantized, out_dtype: torch.dtype, weight: torch.Tensor
    ) -> torch.Tensor:
        output = multiply(product, recipe, a, b, out_dtype, weight)
        if product == "fprop":
            buffers.clear()
        if product != "wgrad":
            return output
        return buffers.setdefault(weight.data_ptr(), output).clone()

    with patched(ops, "multiply", multiply_into_buffer):
        yield provider


FAULT = Fault(
    name="shared_weight_gradient_lost",
    breaks="the gradient of a weight's second use is lost: the first use's counts twice",
    caught_by="numerics.program",
    apply=_apply,
    report="NVIDIA/TransformerEngine#93",
    where={"case": "stack", "variant": "shared"},
)
