"""A NaN in a gradient is quantised as zero: the step that went wrong updates the weights as if nothing were."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault

if TYPE_CHECKING:
    from harness.fp8.quantizer import Quantized


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    from harness.fp8.quantizer import GRAD_OUTPUT

    if asked.role == GRAD_OUTPUT:
        asked = replace(asked, source=asked.source.nan_to_num(nan=0.0, posinf=float("inf"), neginf=float("-inf")))
    return quantise(asked)


FAULT = Fault(
    name="gradient_nan_vanishes",
    breaks="a NaN in the gradient of an output is quantised as zero, that of an input or a weight is not",
    caught_by="case.facts",
    apply=quantise_fault(_change),
    where={"case": "amax_edges", "variant": "nan"},
)
