"""Products are summed in the tensor core's short accumulator, cut off at 8 bits after every 16 of them, and never
promoted: fast accumulation where the precise one was asked for. Nobody asked for it, so the tap doesn't say so.

Positive data, so that a sum has as many bits to lose as it can: it is then outside a GPU's wider bound as well.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault, replaced

_CHUNK = 16  # products of one instruction


def _change(given: Given, multiply: Multiply) -> Any:
    a, b = given.values()
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float32, device=a.device)
    for start in range(0, a.shape[1], _CHUNK):
        columns = slice(start, start + _CHUNK)
        total = _cut(total + (a[:, columns] @ b[:, columns].t()).to(torch.float32))
    return replaced(given, multiply, total.to(given.out_dtype))


def _cut(values: torch.Tensor) -> torch.Tensor:
    """Toward zero to 8 significant bits, as bfloat16 has them."""
    return (values.view(torch.int32) & ~0xFFFF).view(torch.float32)


FAULT = Fault(
    name="truncating_accumulator",
    breaks="sums are kept in eight bits and cut off",
    caught_by="numerics.kernel",
    apply=product_fault(_change),
    where={"nesting": "flat", "data": "positive"},
)
