"""The quantiser of a layer's input reads it as if it were contiguous: right wherever it is."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.storage_order import layout_fault, without_strides

FAULT = Fault(
    name="strides_ignored",
    breaks="an input that is transposed, sliced or expanded is read in storage order",
    caught_by="numerics.program",
    apply=layout_fault("input", without_strides),
    where={"case": "layouts"},
)
