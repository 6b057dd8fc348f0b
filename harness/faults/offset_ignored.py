"""The quantiser of a layer's input takes the strides of the tensor and begins at the start of its storage."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.storage_order import layout_fault, without_offset

FAULT = Fault(
    name="offset_ignored",
    breaks="an input that begins behind the start of its storage is read from there",
    caught_by="numerics.program",
    apply=layout_fault("input", without_offset),
    where={"case": "layouts"},
)
