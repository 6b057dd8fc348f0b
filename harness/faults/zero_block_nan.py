"""A block of zeros has an amax of zero: 448 / 0 is infinite, and zero times infinity is NaN in every code."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.unguarded_scale import unguarded

FAULT = Fault(
    name="zero_block_nan",
    breaks="a block of zeros becomes NaN: its scale is a quotient by an amax of zero",
    caught_by="numerics.finite",
    apply=unguarded(lambda amax: amax == 0),
    report="pytorch/ao#4713",
    where={"case": "amax_edges", "variant": "zero_row", "recipe": "float8_rowwise_scaling"},
)
