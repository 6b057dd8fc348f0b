"""A kernel's loop over the reduction is bounded: products of what lies behind the 512th element are lost."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault, replaced

_LONGEST = 512


def _change(given: Given, multiply: Multiply) -> Any:
    if given.a.source.shape[1] <= _LONGEST:
        return multiply(given)
    a, b = (values[:, :_LONGEST] for values in given.values())
    return replaced(given, multiply, (a @ b.t()).to(given.out_dtype))


FAULT = Fault(
    name="long_reduction_cut",
    breaks="sums over more than 512 elements leave the others out",
    caught_by="numerics.kernel",
    apply=product_fault(_change),
    where={"nesting": "flat", "shape": [272, 528, 144]},
)
