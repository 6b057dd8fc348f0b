"""A layer calls an operator without a fake implementation: torch.compile fails, with and without fullgraph.

Real code: a custom operator whose author never compiled it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@torch.library.custom_op("fp8fault::largest", mutates_args=())
def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.abs().amax()


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    forward = ToyLinear.forward

    def measuring(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        _largest(x.detach())
        return forward(self, x)

    with patched(ToyLinear, "forward", measuring):
        yield provider


FAULT = Fault(
    name="op_without_fake",
    breaks="an operator that torch.compile can't trace, for want of a fake implementation",
    caught_by="error.unexpected",
    apply=_apply,
    where={"fullgraph": False},
)
