"""A branch on a tensor's value inside the layer."""

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

    def branching(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any():
            raise ValueError("NaN in the input")
        return forward(self, x)

    with patched(ToyLinear, "forward", branching):
        yield provider


FAULT = Fault(
    name="data_dependent_branch",
    breaks="a tensor-dependent branch inside the region: no break is counted, the frame runs eagerly",
    caught_by="compile.eager_frames",
    apply=_apply,
    where={"fullgraph": False},
)
