"""Of the two products that make up a shared weight's gradient one is computed in bf16, the FP8 GEMM beside it for show:
the tap reports what the GEMM returned, and the profiler takes the other kernel for no GEMM.

The sum belongs to no record, so the tap can't be tied to it. On positive data sums are large and quantisation moves no
element by more than a few bf16 roundings may: only all elements together tell.
"""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_SEEN: set[int] = set()


def _change(given: Given, multiply: Multiply) -> Any:
    shown = multiply(given)
    if given.product == "fprop":
        _SEEN.clear()
    if given.product != "wgrad" or given.weight.data_ptr() in _SEEN:
        return shown
    _SEEN.add(given.weight.data_ptr())
    return given.high_precision_by_hand()


FAULT = Fault(
    name="wgrad_of_one_use_in_bf16",
    breaks="one of the products in a shared weight's gradient is bf16's, FP8 GEMMs run for show",
    caught_by="numerics.alpha",
    apply=product_fault(_change, clear=_SEEN.clear),
    where={"case": "stack", "variant": "shared", "data": "positive"},
)
