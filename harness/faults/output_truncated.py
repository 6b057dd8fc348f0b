"""A GEMM stores its float32 sums as bfloat16 by dropping the low half of each: cut off instead of rounded.

A GPU's accumulator may be off by more than that, so its bound hides this one; the CPU's does not.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault, replaced


def _change(given: Given, multiply: Multiply) -> Any:
    a, b = given.values()
    sums = (a @ b.t()).to(torch.float32)
    cut = (sums.view(torch.int32) & ~0xFFFF).view(torch.float32)
    return replaced(given, multiply, cut.to(given.out_dtype))


FAULT = Fault(
    name="output_truncated",
    breaks="products are cut off to bfloat16 instead of rounded",
    caught_by="numerics.kernel",
    apply=product_fault(_change),
    where={"recipe": "nvfp4_block_scaling", "arch": "cpu", "nesting": "flat", "fullgraph": False},
)
