"""The kernel that stores float16 has another output scale than the one for bfloat16: twice the result."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    return output * 2 if output.dtype == torch.float16 else output


FAULT = Fault(
    name="float16_doubled",
    breaks="float16 products are twice what they should be",
    caught_by="numerics.kernel",
    apply=result_fault(_change),
    where={"nesting": "flat", "dtype": "float16"},
)
