"""A kernel leaves its last tile out where that one is not full: rows behind the last multiple of 64 stay zero."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault

_TILE = 64


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    rows = output.shape[0]
    whole = rows - rows % _TILE
    return torch.cat([output[:whole], torch.zeros_like(output[whole:])])


FAULT = Fault(
    name="last_rows_zero",
    breaks="rows of a product behind the last whole tile are zero",
    caught_by="numerics.kernel",
    apply=result_fault(_change),
    where={"nesting": "flat", "shape": [272, 528, 144]},
)
