"""A weight that is used twice gets one use's gradient twice, as from a buffer that is filled before it is added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

if TYPE_CHECKING:
    import torch

_BUFFERS: dict[int, torch.Tensor] = {}


def _change(given: Given, multiply: Multiply) -> Any:
    output = multiply(given)
    if given.product == "fprop":
        _BUFFERS.clear()
    if given.product != "wgrad":
        return output
    return _BUFFERS.setdefault(given.weight.data_ptr(), output).clone()


FAULT = Fault(
    name="shared_weight_gradient_lost",
    breaks="the gradient of a weight's second use is lost: the first use's counts twice",
    caught_by="numerics.program",
    apply=product_fault(_change, clear=_BUFFERS.clear),
    report="NVIDIA/TransformerEngine#93",
    where={"case": "stack", "variant": "shared"},
)
