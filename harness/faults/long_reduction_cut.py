"""A kernel's loop over the reduction is bounded: products of what lies behind the 512th element are lost."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.products import reduction_cut

FAULT = Fault(
    name="long_reduction_cut",
    breaks="sums over more than 512 elements leave the others out",
    caught_by="numerics.kernel",
    apply=reduction_cut(512),
    where={"nesting": "flat", "shape": [272, 528, 144]},
)
