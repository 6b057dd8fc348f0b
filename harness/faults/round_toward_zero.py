"""The cast truncates instead of rounding to nearest even."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault
from harness.fp8.quantizer import Quantized, expand_blocks


def _change(given: Quantized) -> Quantized:
    decoded = given.data.to(torch.float32) * expand_blocks(given.scale.to(torch.float32), given.block)
    away = decoded.abs() > given.source.to(torch.float32).abs()
    # One step toward zero: the magnitude's code is the low seven bits, in order of value.
    codes = given.data.view(torch.uint8)
    return dataclasses.replace(given, data=torch.where(away, codes - 1, codes).view(given.data.dtype))


FAULT = Fault(
    name="round_toward_zero",
    breaks="FP8 casts truncate",
    caught_by="numerics.codes",
    apply=quantiser_fault(_change),
)
