"""A kernel leaves its last tile out where that one is not full: columns behind the last multiple of 128 stay zero."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault

_TILE = 128


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    columns = output.shape[1]
    whole = columns - columns % _TILE
    return torch.cat([output[:, :whole], torch.zeros_like(output[:, whole:])], dim=1)


FAULT = Fault(
    name="last_columns_zero",
    breaks="columns of a product behind the last whole tile are zero",
    caught_by="numerics.kernel",
    apply=result_fault(_change),
    where={"nesting": "flat", "shape": [272, 528, 144], "recipe": "float8_rowwise_scaling"},
)
