"""Subnormal FP8 numbers are flushed to zero by the cast, as a float32 unit in flush-to-zero mode would have it."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault
from harness.fp8.quantizer import Quantized


def _change(given: Quantized) -> Quantized:
    codes = given.data.view(torch.uint8)
    mantissa_bits = 3 if given.format == "e4m3" else 2
    subnormal = (codes & 0x7F) >> mantissa_bits == 0
    return dataclasses.replace(given, data=torch.where(subnormal, codes & 0x80, codes).view(given.data.dtype))


FAULT = Fault(
    name="subnormals_flushed",
    breaks="FP8 subnormals are flushed to zero",
    caught_by="numerics.codes",
    apply=quantiser_fault(_change),
    report="pytorch/pytorch#178817",
    where={"recipe": "mxfp8_block_scaling", "nesting": "flat", "fullgraph": False},
)
