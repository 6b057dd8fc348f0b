"""The tap shows what was planned: outputs computed from the operands, not what the kernel returned."""

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

    honest = ops.multiply

    def multiply(product: str, recipe: Any, a: Any, b: Any, out_dtype: torch.dtype, weight: torch.Tensor) -> Any:
        honest(product, recipe, a, b, out_dtype, weight)  # what the tap sees
        return (a.source @ b.source.t()).to(out_dtype)

    with patched(ops, "multiply", multiply):
        yield provider


def _te_beside(product: str, own: Callable[[], torch.Tensor], plain: Callable[[], torch.Tensor]) -> torch.Tensor:
    own()  # what the tap sees
    return plain()


FAULT = Fault(
    name="planned_tap",
    breaks="the program uses a bf16 product while FP8 GEMMs run beside it for show",
    caught_by="numerics.tap",
    apply=by_provider(_apply, te_product_fault(_te_beside)),
    providers=BOTH,
)
