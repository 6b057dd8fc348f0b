"""MXFP8 scales lie in the 128 x 4 tiles of the GEMM, and a kernel reads them row by row: rows get their neighbours'."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, kernel_fault


def _change(given: Given) -> Given:
    if given.recipe.name != "mxfp8_block_scaling":
        return given
    return dataclasses.replace(given, a=_misread(given.a), b=_misread(given.b))


def _misread(operand: Any) -> Any:
    from harness.fp8.kernels import layouts

    rows, k = operand.scale.shape
    if rows % 128 or k % 4:  # padded tiles don't fit the table that they are read as
        return operand
    return dataclasses.replace(operand, scale=layouts.swizzle_32_4_4(operand.scale).reshape(rows, k))


FAULT = Fault(
    name="scales_not_unswizzled",
    breaks="MXFP8 scales are read in the wrong layout",
    caught_by="numerics.kernel",
    apply=kernel_fault(_change),
    where={"recipe": "mxfp8_block_scaling", "nesting": "flat", "fullgraph": False},
)
