"""Scaled values are rounded to bfloat16 before they are rounded to FP8: what came to lie on a midpoint goes astray."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault
from harness.fp8 import formats
from harness.fp8.quantizer import Quantized, expand_blocks


def _change(given: Quantized) -> Quantized:
    if given.scale.element_size() == 1:  # by a power of two nothing is rounded
        return given
    target = formats.E4M3 if given.format == "e4m3" else formats.E5M2
    scaled = given.source.to(torch.float32) / expand_blocks(given.scale, given.block)
    rounded = scaled.to(torch.bfloat16).to(torch.float32)
    return dataclasses.replace(given, data=formats.cast_saturating(rounded, target))


FAULT = Fault(
    name="rounded_twice",
    breaks="values are rounded to bfloat16 on their way to FP8",
    caught_by="numerics.codes",
    apply=quantiser_fault(_change),
    where={"nesting": "flat"},
)
