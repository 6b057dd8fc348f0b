"""What rounds to zero loses its sign: a magnitude of zero is stored as +0. No product shows it, the codes alone do."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault
from harness.fp8 import formats
from harness.fp8.quantizer import Quantized


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    given = quantise(asked)
    if given.format == "e2m1":
        codes = formats.e2m1_unpack(given.data)
        return dataclasses.replace(given, data=formats.e2m1_pack(torch.where(codes == 8, 0, codes)))
    codes = given.data.view(torch.uint8)
    return dataclasses.replace(given, data=torch.where(codes == 0x80, 0, codes).view(given.data.dtype))


FAULT = Fault(
    name="negative_zero_lost",
    breaks="values that round to zero lose their sign",
    caught_by="numerics.codes",
    apply=quantise_fault(_change),
    where={"recipe": "nvfp4_block_scaling", "nesting": "flat", "fullgraph": False},
)
