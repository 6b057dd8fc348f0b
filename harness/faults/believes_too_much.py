"""MXFP8 counts as native on an Ada GPU, which has no block-scaled matrix instructions."""

from __future__ import annotations

from harness.faults.believing import believing
from harness.faults.fault import Fault

FAULT = Fault(
    name="believes_too_much",
    breaks="MXFP8 counts as native on sm89",
    caught_by="support.belief",
    apply=believing("mxfp8_block_scaling", "sm89", ""),
    report="NVIDIA/TransformerEngine#2304",
    where={"arch": "sm89", "recipe": "mxfp8_block_scaling"},
)
