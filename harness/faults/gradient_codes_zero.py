"""The kernel that quantises NVFP4 gradients does nothing on this architecture: all codes are zero, nobody says so."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault
from harness.fp8.quantizer import GRAD_OUTPUT, Quantized


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    given = quantise(asked)
    if given.format != "e2m1" or asked.role != GRAD_OUTPUT:
        return given
    return dataclasses.replace(given, data=torch.zeros_like(given.data))


FAULT = Fault(
    name="gradient_codes_zero",
    breaks="NVFP4 gradients are quantised to zeros",
    caught_by="numerics.nonzero",
    apply=quantise_fault(_change),
    report="NVIDIA/TransformerEngine#3281",
    where={"recipe": "nvfp4_block_scaling", "nesting": "flat", "fullgraph": False},
)
