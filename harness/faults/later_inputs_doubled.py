"""A kernel for small values is off by an exponent: inputs below one, which come after the judged steps, count twice."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    small = given.product == "fprop" and 0 < float(given.a.source.abs().amax()) < 1.0
    return output * 2 if small else output


FAULT = Fault(
    name="later_inputs_doubled",
    breaks="forward products of inputs that are all below one come out twice as large",
    caught_by="numerics.later",
    apply=result_fault(_change),
    where={"nesting": "flat"},
)
