"""A kernel keeps what it reduces in a buffer of 1024 elements: those behind them are lost."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault, replaced

_LONGEST = 1024


def _change(given: Given, multiply: Multiply) -> Any:
    if given.a.source.shape[1] <= _LONGEST:
        return multiply(given)
    a, b = (values[:, :_LONGEST] for values in given.values())
    return replaced(given, multiply, (a @ b.t()).to(given.out_dtype))


FAULT = Fault(
    name="longest_reduction_cut",
    breaks="sums over more than 1024 elements leave the others out",
    caught_by="numerics.kernel",
    apply=product_fault(_change),
    where={"nesting": "flat", "shape": [16, 2064, 16]},
)
