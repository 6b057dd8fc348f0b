"""A kernel's grid has a limit: what lies behind the 1024th row of a product is never written."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault

_MOST = 1024


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    return torch.cat([output[:_MOST], torch.zeros_like(output[_MOST:])])


FAULT = Fault(
    name="many_rows_cut",
    breaks="rows of a product behind the 1024th are zero",
    caught_by="numerics.kernel",
    apply=result_fault(_change),
    where={"nesting": "flat", "shape": [1040, 16, 16]},
)
