"""A layer takes the FP8 path where its weight is a parameter: one that is computed (a parametrization) runs in bf16."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.seams import layer_fault


def _change(forward: Any) -> Any:
    import torch
    from torch.nn import functional

    def forward_of_parameters(self: Any, x: Any) -> Any:
        weight = self.weight
        return forward(self, x) if isinstance(weight, torch.nn.Parameter) else functional.linear(x, weight, self.bias)

    return forward_of_parameters


FAULT = Fault(
    name="computed_weight_in_bf16",
    breaks="layers whose weight is no parameter but computed from one run in high precision",
    caught_by="fp8.gemms",
    apply=layer_fault(_change),
    where={"case": "derived", "variant": "parametrized"},
)
