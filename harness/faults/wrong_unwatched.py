"""Products are NaN while nobody listens to the tap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.faults.seams import BOTH, by_provider, te_product_fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops, tap

    multiply = ops.multiply

    def shy(product: str, *arguments: object) -> torch.Tensor:
        output = multiply(product, *arguments)  # type: ignore[arg-type]
        return output if tap.active() else output * float("nan")

    with patched(ops, "multiply", shy):
        yield provider


def _te_shy(product: str, own: Callable[[], torch.Tensor], plain: Callable[[], torch.Tensor]) -> torch.Tensor:
    from harness.providers import te_tap

    return own() if te_tap.active() else own() * float("nan")


FAULT = Fault(
    name="wrong_unwatched",
    breaks="results are right only while the tap is on",
    caught_by="numerics.later",
    apply=by_provider(_apply, te_product_fault(_te_shy)),
    providers=BOTH,
)
