"""Layers take the FP8 path for rows and for (batch, tokens, features): an input with one dimension more, as attention
heads or images have it, runs in high precision."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.seams import layer_fault


def _change(forward: Any) -> Any:
    from torch.nn import functional

    def forward_of_few(self: Any, x: Any) -> Any:
        return forward(self, x) if x.dim() < 4 else functional.linear(x, self.weight, self.bias)

    return forward_of_few


FAULT = Fault(
    name="high_precision_4d",
    breaks="layers whose input has four dimensions run in high precision",
    caught_by="fp8.gemms",
    apply=layer_fault(_change),
    where={"case": "layouts"},
)
