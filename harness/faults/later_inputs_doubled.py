"""A kernel for small inputs, as they come after the judged steps, is off by an exponent."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault

_SMALL = (
    0.3  # between the medians of the first batch and of the third, an eighth as large, whatever they are drawn from
)


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    small = given.product == "fprop" and float(given.a.source.abs().float().median()) < _SMALL
    return output * 2 if small else output


FAULT = Fault(
    name="later_inputs_doubled",
    breaks="forward products of small inputs come out twice as large",
    caught_by="numerics.later",
    apply=result_fault(_change),
    where={"nesting": "flat"},
)
