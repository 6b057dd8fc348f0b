"""The GEMM takes the scales of A's rows for those of B's rows and the other way round: it fits where the result is
square, as fprop's is in the usual shape."""

from __future__ import annotations

import dataclasses

from harness.faults.fault import Fault
from harness.faults.products import Given, kernel_fault


def _change(given: Given) -> Given:
    a, b = given.a, given.b
    if given.recipe.name != "float8_rowwise_scaling" or a.scale.shape != b.scale.shape:
        return given
    return dataclasses.replace(given, a=dataclasses.replace(a, scale=b.scale), b=dataclasses.replace(b, scale=a.scale))


FAULT = Fault(
    name="row_scales_as_column_scales",
    breaks="row scales are used as column scales",
    caught_by="numerics.kernel",
    apply=kernel_fault(_change),
    where={"recipe": "float8_rowwise_scaling", "nesting": "flat", "fullgraph": False},
)
