"""The encode scale is stored where the decode scale is meant: the kernel multiplies by s instead of 1 / s."""

from __future__ import annotations

import dataclasses

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault
from harness.fp8.quantizer import Quantized, decode_scale


def _change(given: Quantized) -> Quantized:
    if given.scale.element_size() == 1:  # E8M0: bytes of another kind
        return given
    return dataclasses.replace(given, scale=decode_scale(given.scale))


FAULT = Fault(
    name="reciprocal_scale",
    breaks="encode scales stand where decode scales are meant",
    caught_by="numerics.scales",
    apply=quantiser_fault(_change),
    where={"recipe": "float8_rowwise_scaling", "nesting": "flat", "fullgraph": False},
)
