"""An inner region's exit puts back the group, calibration and graph capture of the wrong level: those outside of all
regions, in place of the next outer one's."""

from __future__ import annotations

from harness.faults.exits import inner_exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="inner_exit_wrong_level",
    breaks="after an inner region the outer one's group and calibration are those of no region at all",
    caught_by="state.unchanged",
    apply=inner_exit_fault(lambda outer, inner: (outer[0], False, outer[2], None, outer[4], False, outer[6])),
    report="NVIDIA/TransformerEngine#187",
    where={"case": "disabled", "variant": "inside"},
)
