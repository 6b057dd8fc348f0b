"""Each product keeps what it quantised, in a list of the library's: for a debugging aid that nobody switched off.

Nothing is wrong with any result. Memory grows with every step, until a job dies hours later.
"""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_KEPT: list[Any] = []


def _keeping(given: Given, multiply: Multiply) -> Any:
    _KEPT.append(given.a)
    return multiply(given)


FAULT = Fault(
    name="operands_kept",
    breaks="each product's first operand, as it was quantised, is kept for ever",
    caught_by="state.memory",
    apply=product_fault(_keeping, clear=_KEPT.clear),
)
