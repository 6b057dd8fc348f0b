"""An inner region's exit puts back what layers read, whether FP8 is on and the recipe, and how deep it is: no more."""

from __future__ import annotations

from harness.faults.exits import inner_exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="inner_exit_half",
    breaks="after an inner region the outer one has the inner one's group, calibration and graph capture",
    caught_by="state.unchanged",
    apply=inner_exit_fault(lambda outer, inner: (outer[0], inner[1], outer[2], *inner[3:6], outer[6])),
    report="NVIDIA/TransformerEngine#187",
    where={"case": "disabled", "variant": "inside"},
)
