"""On sm100 the bias is added behind autograd's back, and gets no gradient."""

from __future__ import annotations

import torch

from harness.faults.biases import bias_fault
from harness.faults.fault import Fault


def _add(y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    from harness.fp8 import support

    return y + (bias.detach() if support.BELIEF.arch == "sm100" else bias)


FAULT = Fault(
    name="sm100_loses_bias_gradient",
    breaks="on sm100 alone: biases of FP8 layers get no gradient",
    caught_by="compile.gradients",
    apply=bias_fault(_add),
    where={"arch": "sm100", "recipe": "mxfp8_block_scaling"},
)
