"""A kernel fills its tile of 64 elements of the reduction by beginning anew: shorter ones are added up twice."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault

_TILE = 64


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    return output * 2 if given.a.source.shape[1] < _TILE else output


FAULT = Fault(
    name="short_reduction_twice",
    breaks="sums over less than 64 elements come out twice",
    caught_by="numerics.kernel",
    apply=result_fault(_change),
    where={"nesting": "flat", "shape": [16, 16, 16]},
)
