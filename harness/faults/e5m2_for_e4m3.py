"""Inputs and weights are quantised to E5M2, one bit of mantissa short."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault, requantised
from harness.fp8 import formats
from harness.fp8.quantizer import Quantized


def _change(given: Quantized) -> Quantized:
    if given.format != "e4m3":
        return given
    decode = given.scale.to(torch.float32) * (formats.E4M3.max / formats.E5M2.max)
    return requantised(dataclasses.replace(given, format="e5m2"), 1 / decode, decode)


FAULT = Fault(
    name="e5m2_for_e4m3",
    breaks="E5M2 where the recipe says E4M3",
    caught_by="numerics.codes",
    apply=quantiser_fault(_change),
)
