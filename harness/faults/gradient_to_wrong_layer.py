"""Two layers of one shape share a gradient buffer: the weight of the earlier one gets the gradient of the later one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

if TYPE_CHECKING:
    import torch

_FILLED: dict[tuple[int, ...], torch.Tensor] = {}


def _change(given: Given, multiply: Multiply) -> Any:
    output = multiply(given)
    if given.product == "fprop":
        _FILLED.clear()
    if given.product != "wgrad":
        return output
    return _FILLED.setdefault(tuple(output.shape), output).clone()


FAULT = Fault(
    name="gradient_to_wrong_layer",
    breaks="a weight gets the gradient of another layer's weight",
    caught_by="numerics.program",
    apply=product_fault(_change, clear=_FILLED.clear),
)
