"""The two FP4 codes of a byte of the weight are in the wrong order; the other operand's are in the right one."""

from __future__ import annotations

import dataclasses

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault
from harness.fp8.quantizer import WEIGHT, Quantized


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    given = quantise(asked)
    if given.format != "e2m1" or asked.role != WEIGHT:
        return given
    return dataclasses.replace(given, data=(given.data << 4) | (given.data >> 4))


FAULT = Fault(
    name="nibbles_swapped",
    breaks="the two codes of each FP4 byte are exchanged in the weight",
    caught_by="numerics.codes",
    apply=quantise_fault(_change),
    where={"recipe": "nvfp4_block_scaling", "nesting": "flat", "fullgraph": False},
)
