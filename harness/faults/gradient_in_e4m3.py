"""HYBRID says E5M2 for gradients; they are quantised to E4M3, as activations are, with a scale that fits."""

from __future__ import annotations

import dataclasses

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault, requantised
from harness.fp8 import formats
from harness.fp8.quantizer import Quantized


def _change(given: Quantized) -> Quantized:
    if given.format != "e5m2":
        return given
    decode = given.scale * (formats.E5M2.max / formats.E4M3.max)
    return requantised(dataclasses.replace(given, format="e4m3"), 1 / decode, decode)


FAULT = Fault(
    name="gradient_in_e4m3",
    breaks="E4M3 for gradients where the recipe says E5M2",
    caught_by="numerics.codes",
    apply=quantiser_fault(_change),
)
