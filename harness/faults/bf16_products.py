"""Products are computed from the unquantised operands, while the tap shows the quantised ones."""

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
    from harness.fp8 import ops, tap

    def multiply(product: str, recipe: Any, a: Any, b: Any, out_dtype: torch.dtype, weight: torch.Tensor) -> Any:
        output = (a.source @ b.source.t()).to(out_dtype)
        if tap.active():
            phase = "forward" if product == "fprop" else "backward"
            tap.emit(tap.Product(recipe.key, product, phase, a, b, output, weight.data_ptr()))
        return output

    with patched(ops, "multiply", multiply):
        yield provider


def _te_plain(product: str, own: Callable[[], torch.Tensor], plain: Callable[[], torch.Tensor]) -> torch.Tensor:
    from harness.providers import te_tap

    if te_tap.active():  # what the tap is to show
        own()
    return plain()


FAULT = Fault(
    name="bf16_products",
    breaks="bf16 GEMMs in place of FP8 ones",
    caught_by="fp8.gemms",
    apply=by_provider(_apply, te_product_fault(_te_plain)),
    report="pytorch/torchtitan#3990",
    providers=BOTH,
)
