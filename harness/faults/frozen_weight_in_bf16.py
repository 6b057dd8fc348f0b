"""A layer takes the FP8 path where its weight is trained: a frozen one, as adapters leave it, runs in bf16."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.seams import layer_fault


def _change(forward: Any) -> Any:
    from torch.nn import functional

    def forward_of_trained(self: Any, x: Any) -> Any:
        return forward(self, x) if self.weight.requires_grad else functional.linear(x, self.weight, self.bias)

    return forward_of_trained


FAULT = Fault(
    name="frozen_weight_in_bf16",
    breaks="layers with a frozen weight run in high precision",
    caught_by="fp8.gemms",
    apply=layer_fault(_change),
    where={"case": "frozen"},
)
