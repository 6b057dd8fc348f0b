"""Each FP8 GEMM runs, and a bfloat16 product replaces its result before anybody sees it, the tap included."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault, replaced


def _change(given: Given, multiply: Multiply) -> Any:
    return replaced(given, multiply, given.high_precision())


FAULT = Fault(
    name="bf16_result_kept",
    breaks="FP8 GEMMs run for show, and bf16 results are used and reported",
    caught_by="numerics.kernel",
    apply=product_fault(_change),
    where={"recipe": "mxfp8_block_scaling", "nesting": "flat", "fullgraph": False},
)
