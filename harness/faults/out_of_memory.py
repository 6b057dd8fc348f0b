"""A layer asks for more memory than there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider

TOO_MUCH = 1 << 60  # bytes


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import ToyLinear

    def allocate(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        return torch.empty(TOO_MUCH, dtype=torch.uint8, device=x.device)

    with patched(ToyLinear, "forward", allocate):
        yield provider


FAULT = Fault(name="out_of_memory", breaks="an allocation that can't succeed", caught_by="run.oom", apply=_apply)
