"""dgrad keeps its sums in float16: eleven bits, rounded after every 16 products.

A GPU's accumulator may be off by more than that, so its bound hides this one; the CPU's does not.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault, replaced

_CHUNK = 16


def _change(given: Given, multiply: Multiply) -> Any:
    if given.product != "dgrad":
        return multiply(given)
    a, b = given.values()
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float16, device=a.device)
    for start in range(0, a.shape[1], _CHUNK):
        columns = slice(start, start + _CHUNK)
        total = (total.double() + a[:, columns] @ b[:, columns].t()).to(torch.float16)
    return replaced(given, multiply, total.to(given.out_dtype))


FAULT = Fault(
    name="dgrad_half_accumulator",
    breaks="input gradients are accumulated in float16",
    caught_by="numerics.kernel",
    apply=product_fault(_change),
    where={
        "recipe": "float8_block_scaling",
        "arch": "cpu",
        "nesting": "flat",
        "fullgraph": False,
        "data": "heavy_tailed",
    },
)
