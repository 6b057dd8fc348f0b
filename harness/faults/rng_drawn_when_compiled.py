"""Compiled layers draw from torch's generator what no result shows: every later random number is another one.

Real code: noise for stochastic rounding that compiled code draws although the recipe has it switched off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    forward = ToyLinear.forward

    def drawing(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            x = x + 0 * torch.rand((), dtype=x.dtype, device=x.device)
        return forward(self, x)

    with patched(ToyLinear, "forward", drawing):
        yield provider


FAULT = Fault(
    name="rng_drawn_when_compiled",
    breaks="compiled code advances torch's generator where eager code doesn't",
    caught_by="state.unchanged",
    apply=_apply,
)
