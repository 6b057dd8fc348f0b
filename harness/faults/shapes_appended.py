"""Each call appends to a list of the layer's: a guard on its length fails every time, until the recompile limit ends
compilation and calls run eagerly without a break.

Real code: a log of shapes or amaxes, kept in Python for a user who may ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    forward = ToyLinear.forward
    log: list[Any] = []

    def logging(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        log.append(x.shape[1])
        return forward(self, x)

    with patched(ToyLinear, "forward", logging):
        yield provider


FAULT = Fault(
    name="shapes_appended",
    breaks="a list that grows with each call: the recompile limit is reached",
    caught_by="compile.recompile_limit",
    apply=_apply,
    report="pytorch/pytorch#128319",
    where={"fullgraph": False},
)
