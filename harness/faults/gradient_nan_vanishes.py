"""A NaN in a gradient is quantised as zero: the step that went wrong updates the weights as if nothing were."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.quantising import source_fault, without_nan

FAULT = Fault(
    name="gradient_nan_vanishes",
    breaks="a NaN in the gradient of an output is quantised as zero, that of an input or a weight is not",
    caught_by="case.facts",
    apply=source_fault("grad_output", without_nan),
    where={"case": "amax_edges", "variant": "nan"},
)
