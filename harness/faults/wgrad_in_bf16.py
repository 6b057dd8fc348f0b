"""Weight gradients alone are computed in bf16; the tap shows the operands that were quantised for nothing."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault


def _change(given: Given, multiply: Multiply) -> Any:
    return given.show(given.high_precision()) if given.product == "wgrad" else multiply(given)


FAULT = Fault(
    name="wgrad_in_bf16",
    breaks="bf16 GEMMs for weight gradients alone",
    caught_by="fp8.gemms",
    apply=product_fault(_change),
    where={"recipe": "float8_block_scaling", "nesting": "flat", "fullgraph": False},
)
