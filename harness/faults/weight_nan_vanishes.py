"""A NaN in a weight is quantised as zero: a checkpoint that is broken gives a healthy loss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault

if TYPE_CHECKING:
    from harness.fp8.quantizer import Quantized


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    from harness.fp8.quantizer import WEIGHT

    if asked.role == WEIGHT:
        asked = replace(asked, source=asked.source.nan_to_num(nan=0.0, posinf=float("inf"), neginf=float("-inf")))
    return quantise(asked)


FAULT = Fault(
    name="weight_nan_vanishes",
    breaks="a NaN in a weight is quantised as zero, that of an input or a gradient is not",
    caught_by="case.facts",
    apply=quantise_fault(_change),
    where={"case": "amax_edges", "variant": "nan"},
)
