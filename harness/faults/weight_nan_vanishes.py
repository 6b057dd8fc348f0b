"""A NaN in a weight is quantised as zero: a checkpoint that is broken gives a healthy loss."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.quantising import source_fault, without_nan

FAULT = Fault(
    name="weight_nan_vanishes",
    breaks="a NaN in a weight is quantised as zero, that of an input or a gradient is not",
    caught_by="case.facts",
    apply=source_fault("weight", without_nan),
    where={"case": "amax_edges", "variant": "nan"},
)
