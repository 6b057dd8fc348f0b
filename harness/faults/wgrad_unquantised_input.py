"""wgrad multiplies the quantised gradient by the input in high precision; an FP8 GEMM runs beside it for show."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault, replaced


def _change(given: Given, multiply: Multiply) -> Any:
    if given.product != "wgrad":
        return multiply(given)
    gradient, _ = given.values()
    output = (gradient @ given.b.source.double().t()).to(given.out_dtype)
    return replaced(given, multiply, output)


FAULT = Fault(
    name="wgrad_unquantised_input",
    breaks="weight gradients come from an input that is not quantised",
    caught_by="numerics.kernel",
    apply=product_fault(_change),
    where={"nesting": "flat"},
)
