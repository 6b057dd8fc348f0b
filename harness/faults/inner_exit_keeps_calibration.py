"""An inner region's exit forgets whether the outer one calibrates: as it was inside it stays to the outermost exit."""

from __future__ import annotations

from harness.faults.exits import inner_exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="inner_exit_keeps_calibration",
    breaks="after an inner region the outer one calibrates, or doesn't, as the inner one did",
    caught_by="state.unchanged",
    apply=inner_exit_fault(lambda outer, inner: (outer[0], inner[1], *outer[2:])),
    report="NVIDIA/TransformerEngine#187",
    where={"case": "disabled", "variant": "inside"},
)
