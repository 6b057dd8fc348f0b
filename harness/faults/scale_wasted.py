"""Scales waste six bits of range: right within FP8's range, but small values fall to zero."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault, requantised
from harness.fp8.quantizer import Quantized


def _change(given: Quantized) -> Quantized:
    decode = given.scale.to(torch.float32) * 64
    return requantised(given, 1 / decode, decode)


FAULT = Fault(
    name="scale_wasted",
    breaks="a scale 64 times too small, consistently: range is wasted, no value is wrong by much",
    caught_by="numerics.scales",
    apply=quantiser_fault(_change),
)
