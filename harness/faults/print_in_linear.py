"""A print inside the layer: a break inside the region, which Dynamo answers by abandoning the whole frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, layer_fault

if TYPE_CHECKING:
    import torch


def _noisy(forward: Any) -> Any:
    def noisy(self: Any, x: torch.Tensor) -> Any:
        print(end="")
        return forward(self, x)

    return noisy


FAULT = Fault(
    name="print_in_linear",
    breaks="a graph break inside the region: the frame around it runs eagerly",
    caught_by="compile.eager_frames",
    apply=layer_fault(_noisy),
    report="pytorch/pytorch#150477",
    where={"fullgraph": False},
    providers=BOTH,
)
