"""A counter in a module grows with each call: a guard on it fails every time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, layer_fault

if TYPE_CHECKING:
    import torch


def _counting(forward: Any) -> Any:
    calls = {"count": "|"}

    def counting(self: Any, x: torch.Tensor) -> Any:
        calls["count"] = calls["count"] + "|"
        return forward(self, x)

    return counting


FAULT = Fault(
    name="counting_state",
    breaks="each call recompiles, until the recompile limit ends compilation",
    caught_by="compile.steady",
    apply=layer_fault(_counting),
    report="pytorch/pytorch#128319",
    where={"fullgraph": False},
    providers=BOTH,
)
