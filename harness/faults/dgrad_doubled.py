"""The gradient of the input comes out twice as large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, by_provider, te_product_fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import ops

    multiply = ops.multiply

    def doubled(product: str, *arguments: object) -> torch.Tensor:
        output = multiply(product, *arguments)  # type: ignore[arg-type]
        return output * 2 if product == "dgrad" else output

    with patched(ops, "multiply", doubled):
        yield provider


def _te_doubled(product: str, own: Callable[[], torch.Tensor], plain: Callable[[], torch.Tensor]) -> torch.Tensor:
    return own() * 2 if product == "dgrad" else own()


FAULT = Fault(
    name="dgrad_doubled",
    breaks="the input gradient is scaled twice",
    caught_by="numerics.program",
    apply=by_provider(_apply, te_product_fault(_te_doubled)),
    report="pytorch/ao#4187",
    providers=BOTH,
)
