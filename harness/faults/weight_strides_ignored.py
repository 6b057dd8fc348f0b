"""The quantiser of a weight reads it as if it were contiguous: wrong where the parameter is stored transposed."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.storage_order import layout_fault, without_strides

FAULT = Fault(
    name="weight_strides_ignored",
    breaks="a weight that is stored transposed is read in storage order",
    caught_by="numerics.program",
    apply=layout_fault("weight", without_strides),
    where={"case": "layouts"},
)
