"""Compiled layers run without gradients: the forward is captured and right, and nothing has a backward.

Real code: an operator with a fast path for inference, taken whenever torch.compile traces, or one that was registered
without an autograd formula.
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

    def inferring(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            return forward(self, x)
        with torch.no_grad():
            return forward(self, x)

    with patched(ToyLinear, "forward", inferring):
        yield provider


FAULT = Fault(
    name="backward_lost_when_compiled",
    breaks="compiled layers have no backward",
    caught_by="compile.backward_graph",
    apply=_apply,
)
