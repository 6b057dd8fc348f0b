"""A counter in a module grows with each call: a guard on it fails every time."""

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
    calls = {"count": "|"}

    def counting(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        calls["count"] = calls["count"] + "|"
        return forward(self, x)

    with patched(ToyLinear, "forward", counting):
        yield provider


FAULT = Fault(
    name="counting_state",
    breaks="each call recompiles, until the recompile limit ends compilation",
    caught_by="compile.steady",
    apply=_apply,
    report="pytorch/pytorch#128319",
    where={"fullgraph": False},
)
