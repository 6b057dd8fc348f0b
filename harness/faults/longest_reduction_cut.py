"""A kernel keeps what it reduces in a buffer of 1024 elements: those behind them are lost."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.products import reduction_cut

FAULT = Fault(
    name="longest_reduction_cut",
    breaks="sums over more than 1024 elements leave the others out",
    caught_by="numerics.kernel",
    apply=reduction_cut(1024),
    where={"nesting": "flat", "shape": [16, 2064, 16]},
)
