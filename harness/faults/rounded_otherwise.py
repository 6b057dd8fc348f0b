"""Under torch.compile a layer's result is rounded another way, as fusion does that leaves a rounding out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import ToyLinear

    forward = ToyLinear.forward

    def fused(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        y = forward(self, x)
        if not torch.compiler.is_compiling():
            return y
        # Half to one spacing of a bf16 number: most results move by their last bit.
        return y + y.detach().abs() * 2.0**-8

    with patched(ToyLinear, "forward", fused):
        yield provider


FAULT = Fault(
    name="rounded_otherwise",
    breaks="compiled results differ from eager ones in the last bit",
    caught_by="numerics.eager",
    apply=_apply,
    report="pytorch/pytorch#179561",
)
