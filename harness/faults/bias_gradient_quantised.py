"""The bias's gradient is the sum of the gradient's FP8 values, where it should be that of the gradient itself."""

from __future__ import annotations

from typing import Any

import torch

from harness.faults.biases import bias_fault
from harness.faults.fault import Fault


class _Quantised(torch.autograd.Function):
    """Identity, whose gradient is rounded to E5M2 with a scale of the tensor."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        scale = 57344.0 / grad.abs().amax().to(torch.float32)
        return ((grad.to(torch.float32) * scale).to(torch.float8_e5m2).to(torch.float32) / scale).to(grad.dtype)


def _add(y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    added: torch.Tensor = _Quantised.apply(bias.expand(y.shape))  # type: ignore[no-untyped-call]
    return y + added


FAULT = Fault(
    name="bias_gradient_quantised",
    breaks="a bias's gradient is summed up from FP8 values",
    caught_by="numerics.program",
    apply=bias_fault(_add),
    # On positive data the errors of all rows average out to less than one rounding of the sum (docs/detection.md).
    where={"nesting": "flat", "data": "normal"},
)
