"""On sm100 a layer reads its input behind autograd's back: nothing that comes before it is trained."""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.faults.fault import Fault
from harness.faults.seams import layer_fault

Forward = Callable[..., torch.Tensor]


def _change(forward: Forward) -> Forward:
    from harness.fp8 import support

    def detaching(self: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return forward(self, x.detach() if support.BELIEF.arch == "sm100" else x)

    return detaching


FAULT = Fault(
    name="sm100_detaches_input",
    breaks="on sm100 alone: no gradient reaches the input of an FP8 layer",
    caught_by="compile.gradients",
    apply=layer_fault(_change),
    where={"arch": "sm100", "recipe": "mxfp8_block_scaling"},
)
