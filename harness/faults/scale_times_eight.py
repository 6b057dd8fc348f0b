"""Encode scales are eight times too large, decode scales match: large values saturate, quietly."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault, requantised
from harness.fp8.quantizer import Quantized


def _change(given: Quantized) -> Quantized:
    decode = given.scale.to(torch.float32) / 8
    return requantised(given, 1 / decode, decode)


FAULT = Fault(
    name="scale_times_eight",
    breaks="a scale eight times too large: the largest values saturate",
    caught_by="numerics.scales",
    apply=quantiser_fault(_change),
)
