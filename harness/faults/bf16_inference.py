"""Where no gradients are wanted, a layer computes in high precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.linear import ToyLinear

    run = ToyLinear.forward

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return run(self, x) if torch.is_grad_enabled() else functional.linear(x, self.weight, self.bias)

    with patched(ToyLinear, "forward", forward):
        yield provider


FAULT = Fault(
    name="bf16_inference",
    breaks="inference runs in high precision inside an FP8 region",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    where={"case": "mode_switch", "variant": "train_first"},
)
