"""The bias is rounded to E4M3 on its way to the layer's result, as a weight is: it should be added as it is."""

from __future__ import annotations

import torch

from harness.faults.biases import bias_fault
from harness.faults.fault import Fault


def _add(y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scale = 448.0 / bias.detach().abs().amax().to(torch.float32)
    decoded = (bias.detach().to(torch.float32) * scale).to(torch.float8_e4m3fn).to(torch.float32) / scale
    return y + (bias + (decoded.to(bias.dtype) - bias.detach()))  # the gradient is that of the bias


FAULT = Fault(
    name="bias_in_fp8",
    breaks="FP8 layers add a bias in E4M3",
    caught_by="numerics.tap",
    apply=bias_fault(_add),
    where={"recipe": "float8_block_scaling", "nesting": "flat", "fullgraph": False},
)
