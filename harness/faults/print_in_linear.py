"""A print inside the layer: a break inside the region, which Dynamo answers by abandoning the whole frame."""

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

    def noisy(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return forward(self, x)

    with patched(ToyLinear, "forward", noisy):
        yield provider


FAULT = Fault(
    name="print_in_linear",
    breaks="a graph break inside the region: the frame around it runs eagerly",
    caught_by="compile.eager_frames",
    apply=_apply,
    report="pytorch/pytorch#150477",
    where={"fullgraph": False},
)
