"""harness.faults.biases: what a layer with a bias returns under such a fault, in FP8 and out of it."""

from __future__ import annotations

from typing import Any

import torch

from harness.faults.biases import bias_fault
from harness.fp8 import ToyLinear, autocast
from harness.fp8.recipe import Float8CurrentScaling


def test_layers_in_fp8_add_their_bias_in_another_way() -> None:
    provider: Any = None
    layer, bare = ToyLinear(32, 32), ToyLinear(32, 32, bias=False)
    x = torch.randn(32, 32, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    before = ToyLinear._add_bias

    def outputs() -> tuple[torch.Tensor, torch.Tensor]:
        with autocast(enabled=True, recipe=Float8CurrentScaling()):
            return layer(x), bare(x)

    good = outputs()
    with bias_fault(lambda y, bias: y)(provider):
        lost = outputs()
        high_precision = layer(x)
    assert layer.bias is not None
    assert not torch.equal(good[0], lost[0])
    assert torch.equal(good[0], lost[0] + layer.bias)
    assert torch.equal(good[1], lost[1])
    assert torch.equal(high_precision, layer(x))
    assert ToyLinear._add_bias is before
