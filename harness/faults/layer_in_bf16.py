"""One layer of three runs in bf16, forward and backward: a name that a filter of modules forgot."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault


def _change(given: Given, multiply: Multiply) -> Any:
    outputs, inputs = given.weight.shape
    return given.show(given.high_precision()) if outputs > inputs else multiply(given)


FAULT = Fault(
    name="layer_in_bf16",
    breaks="one layer of several runs in bf16",
    caught_by="fp8.gemms",
    apply=product_fault(_change),
)
