"""Layers compute in high precision where their input has leading dimensions: a (batch, tokens, features) model has no
FP8 at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    forward = ToyLinear.forward

    def forward_of_matrices(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        return forward(self, x) if x.dim() == 2 else functional.linear(x, self.weight, self.bias)

    with patched(ToyLinear, "forward", forward_of_matrices):
        yield provider


FAULT = Fault(
    name="high_precision_3d",
    breaks="layers whose input has leading dimensions run in high precision",
    caught_by="fp8.gemms",
    apply=_apply,
    report="pytorch/torchtitan#3990",
    where={"case": "target", "target": "examples.target.mlp:build_alone"},
)
