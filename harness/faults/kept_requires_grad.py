"""A layer remembers from its first call whether its input needs a gradient."""

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
    from harness.fp8.linear import ToyLinear

    run = ToyLinear.forward

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        wants = self.__dict__.setdefault("wants", x.requires_grad)
        return run(self, x if wants else x.detach())

    with patched(ToyLinear, "forward", forward):
        yield provider


FAULT = Fault(
    name="kept_requires_grad",
    breaks="an input that needed no gradient at first never gets one",
    caught_by="numerics.program",
    apply=_apply,
    where={"case": "mode_switch", "variant": "no_grad_first", "backend": "eager"},
)
