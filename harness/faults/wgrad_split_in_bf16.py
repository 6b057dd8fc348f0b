"""wgrad is split along its reduction, and the partial sums are kept and added in bfloat16."""

from __future__ import annotations

from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault, replaced

_SPLITS = 32


def _change(given: Given, multiply: Multiply) -> Any:
    if given.product != "wgrad":
        return multiply(given)
    a, b = given.values()
    parts = zip(a.chunk(_SPLITS, dim=1), b.chunk(_SPLITS, dim=1), strict=True)
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.bfloat16, device=a.device)
    for left, right in parts:
        total = total + (left @ right.t()).to(torch.bfloat16)
    return replaced(given, multiply, total.to(given.out_dtype))


FAULT = Fault(
    name="wgrad_split_in_bf16",
    breaks="weight gradients are accumulated in bfloat16",
    caught_by="numerics.kernel",
    apply=product_fault(_change),
    where={"recipe": "float8_rowwise_scaling", "nesting": "flat", "fullgraph": False, "data": "positive"},
)
