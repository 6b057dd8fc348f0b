"""NVFP4 weights get a scale for every 16 elements of a row where the recipe says one for 16 x 16."""

from __future__ import annotations

import dataclasses

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault
from harness.fp8.quantizer import Quantized
from harness.fp8.recipe import NVFP4BlockScaling


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    if not isinstance(asked.recipe, NVFP4BlockScaling):
        return quantise(asked)
    return quantise(dataclasses.replace(asked, recipe=NVFP4BlockScaling(disable_2d_quantization=True)))


FAULT = Fault(
    name="weight_in_rows",
    breaks="weights are quantised in one dimension where two were asked for",
    caught_by="numerics.scales",
    apply=quantise_fault(_change),
    where={"recipe": "nvfp4_block_scaling", "nesting": "flat", "fullgraph": False},
)
