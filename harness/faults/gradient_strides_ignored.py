"""The quantiser of a layer's output gradient reads it as if it were contiguous: ``sum``, ``cat`` and a transpose make
others."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.storage_order import layout_fault, without_strides

FAULT = Fault(
    name="gradient_strides_ignored",
    breaks="an output gradient that is transposed, sliced or expanded is read in storage order",
    caught_by="numerics.program",
    apply=layout_fault("grad_output", without_strides),
    where={"case": "layouts"},
)
