"""A region holds for the thread that opened it only: in another thread eager layers compute in high precision."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    forward = ToyLinear.forward

    def forward_of_thread(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and threading.current_thread() is not threading.main_thread():
            return functional.linear(x, self.weight, self.bias)
        return forward(self, x)

    with patched(ToyLinear, "forward", forward_of_thread):
        yield provider


FAULT = Fault(
    name="region_per_thread",
    breaks="another thread's layers don't see the open region",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    where={"case": "threads", "variant": "inside"},
)
