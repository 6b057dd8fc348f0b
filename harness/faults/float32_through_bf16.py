"""A kernel stores bfloat16 alone: a float32 result is its bfloat16 one, converted.

Shown on the CPU, which sums in float32: the tensor core of an H200 keeps no more bits itself (0.5 to 1.1 of its bound).
"""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    return output.bfloat16().float() if output.dtype == torch.float32 else output


FAULT = Fault(
    name="float32_through_bf16",
    breaks="float32 products have bfloat16's precision",
    caught_by="numerics.kernel",
    apply=result_fault(_change),
    where={"nesting": "flat", "dtype": "float32", "arch": "cpu"},
)
