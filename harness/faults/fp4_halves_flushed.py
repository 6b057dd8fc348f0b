"""E2M1's one subnormal, 0.5, is flushed to zero: a quarter of what a block of FP4 can say is gone."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault
from harness.fp8 import formats
from harness.fp8.quantizer import Quantized


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    given = quantise(asked)
    if given.format != "e2m1":
        return given
    codes = formats.e2m1_unpack(given.data)
    return dataclasses.replace(given, data=formats.e2m1_pack(torch.where(codes & 7 == 1, codes & 8, codes)))


FAULT = Fault(
    name="fp4_halves_flushed",
    breaks="FP4's subnormal value is flushed to zero",
    caught_by="numerics.codes",
    apply=quantise_fault(_change),
    where={"recipe": "nvfp4_block_scaling", "nesting": "flat", "fullgraph": False},
)
