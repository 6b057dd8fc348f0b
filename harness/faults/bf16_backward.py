"""Only the forward product runs in FP8; dgrad and wgrad run in bf16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, by_provider, te_product_fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import ops

    fp8_multiply = ops.multiply

    def multiply(product: str, recipe: Any, a: Any, b: Any, out_dtype: torch.dtype, weight: torch.Tensor) -> Any:
        if product == "fprop":
            return fp8_multiply(product, recipe, a, b, out_dtype, weight)
        return (a.source @ b.source.t()).to(out_dtype)

    with patched(ops, "multiply", multiply):
        yield provider


def _te_forward_alone(product: str, own: Callable[[], torch.Tensor], plain: Callable[[], torch.Tensor]) -> torch.Tensor:
    return own() if product == "fprop" else plain()


FAULT = Fault(
    name="bf16_backward",
    breaks="FP8 in the forward pass alone",
    caught_by="fp8.gemms",
    apply=by_provider(_apply, te_product_fault(_te_forward_alone)),
    providers=BOTH,
)
