"""NVFP4 gradients are rounded stochastically though the recipe switched that off."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault
from harness.fp8 import formats
from harness.fp8.quantizer import GRAD_OUTPUT, Quantized, expand_blocks


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    given = quantise(asked)
    if given.format != "e2m1" or asked.role != GRAD_OUTPUT or given.global_scale is None:
        return given
    decode = expand_blocks(given.scale.to(torch.float32) * given.global_scale, given.block)
    values = torch.where(decode == 0, torch.zeros_like(decode), asked.source.to(torch.float32) / decode)
    magnitude = values.abs()
    spacing = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    # Nearest even of a value that was moved by up to half a spacing either way: stochastic rounding.
    codes = formats.e2m1_encode(values + (torch.rand_like(values) - 0.5) * spacing)
    return dataclasses.replace(given, data=formats.e2m1_pack(codes))


FAULT = Fault(
    name="stochastic_rounding",
    breaks="NVFP4 gradients are rounded stochastically where round to nearest was asked for",
    caught_by="numerics.codes",
    apply=quantise_fault(_change),
    where={"recipe": "nvfp4_block_scaling", "nesting": "flat", "fullgraph": False},
)
