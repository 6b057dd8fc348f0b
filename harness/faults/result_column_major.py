"""The weight's gradient comes out column by column, while the operator's fake implementation says row by row.

Real code: a library that computes the transposed product and returns a view of it. Eager code reads it rightly, as does
aot_eager, and autograd copies it to the weight's own strides; Inductor generates code for strides that it doesn't have.
"""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault


def _by_columns(given: Given, result: torch.Tensor) -> torch.Tensor:
    return result.t().contiguous().t() if given.product == "wgrad" else result


FAULT = Fault(
    name="result_column_major",
    breaks="the weight's gradient has other strides than its fake says",
    caught_by="compile.fake",
    apply=result_fault(_by_columns),
)
