"""The first backward uses up what it needs: a second one over the same graph adds nothing to the weights' gradients."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_DONE: set[int] = set()  # addresses of the weights of layers whose gradient was computed since their forward


def _change(given: Given, multiply: Multiply) -> Any:
    layer, output = given.weight.data_ptr(), multiply(given)
    if given.product == "fprop":
        _DONE.discard(layer)
    if given.product != "wgrad":
        return output
    first = layer not in _DONE
    _DONE.add(layer)
    return output if first else output * 0


FAULT = Fault(
    name="second_backward_empty",
    breaks="a second backward over the same graph gives no weight gradient",
    caught_by="numerics.program",
    apply=product_fault(_change, clear=_DONE.clear),
    where={"case": "backward_outside", "variant": "twice"},
)
