"""Layers quantise and dequantise input and weight and multiply in bf16, gradients passed straight through: simulated
FP8, as in quantisation-aware training, under the name of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _rounded(values: torch.Tensor) -> torch.Tensor:
    """E4M3 with a scale of the tensor, and back; the gradient is that of the identity."""
    scale = 448.0 / values.detach().abs().amax().to(torch.float32)
    decoded = (values.detach().to(torch.float32) * scale).to(torch.float8_e4m3fn).to(torch.float32) / scale
    return values + (decoded.to(values.dtype) - values.detach())


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import FP8GlobalStateManager, ToyLinear

    forward = ToyLinear.forward

    def simulated(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        if not FP8GlobalStateManager.quantization_state.fp8_enabled:
            return forward(self, x)
        return functional.linear(_rounded(x), _rounded(self.weight), self.bias)

    with patched(ToyLinear, "forward", simulated):
        yield provider


FAULT = Fault(
    name="fake_quantisation",
    breaks="values are rounded to FP8 and multiplied in bf16, without any FP8 GEMM",
    caught_by="fp8.gemms",
    apply=_apply,
    where={"nesting": "flat"},
)
