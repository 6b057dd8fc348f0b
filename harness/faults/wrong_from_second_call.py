"""The first call is right; products of every later call of a layer are ten times too large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.faults.seams import BOTH, by_provider, te_product_fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops

    multiply = ops.multiply
    calls: Counter[tuple[str, int]] = Counter()

    def drifting(product: str, *arguments: object) -> torch.Tensor:
        weight = arguments[-1]
        output = multiply(product, *arguments)  # type: ignore[arg-type]
        key = (product, weight.data_ptr() if isinstance(weight, torch.Tensor) else 0)
        calls[key] += 1
        return output * 10 if calls[key] > 1 else output

    with patched(ops, "multiply", drifting):
        yield provider


_CALLS: Counter[tuple[str, tuple[int, ...]]] = Counter()


def _te_drifting(product: str, own: Callable[[], torch.Tensor], plain: Callable[[], torch.Tensor]) -> torch.Tensor:
    output = own()
    key = product, tuple(output.shape)
    _CALLS[key] += 1
    return output * 10 if _CALLS[key] > 1 else output


FAULT = Fault(
    name="wrong_from_second_call",
    breaks="only the first call of each layer is right",
    caught_by="numerics.program",
    apply=by_provider(_apply, te_product_fault(_te_drifting, clear=_CALLS.clear)),
    providers=BOTH,
)
