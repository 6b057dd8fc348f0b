"""Each FP8 product also runs in high precision, and that result is thrown away: nothing is wrong but the time it takes.

Real code: a fallback that is computed before anybody asks whether it is needed, or a debugging comparison left on.
"""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault


def _twice(given: Given, multiply: Multiply) -> Any:
    given.high_precision()
    return multiply(given)


FAULT = Fault(
    name="bf16_beside",
    breaks="each FP8 product also runs in high precision, for nothing",
    caught_by="fp8.gemms",
    apply=product_fault(_twice),
)
