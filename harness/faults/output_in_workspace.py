"""Every product of one shape is returned in one workspace: the next call overwrites what a user still holds.

A layer's bias makes a new tensor and hides it, and what a layer needs of an earlier one is used before the next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

if TYPE_CHECKING:
    import torch

_WORKSPACE: dict[tuple[object, ...], torch.Tensor] = {}


def _change(given: Given, multiply: Multiply) -> Any:
    output = multiply(given)
    if given.product != "fprop":
        return output
    workspace = _WORKSPACE.setdefault((tuple(output.shape), output.dtype), output.clone())
    return workspace.copy_(output).detach()


FAULT = Fault(
    name="output_in_workspace",
    breaks="a result is overwritten by the next call",
    caught_by="numerics.storage",
    apply=product_fault(_change, clear=_WORKSPACE.clear),
    where={"case": "amax_edges", "variant": "tiny"},
)
