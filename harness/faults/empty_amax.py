"""The amax of a batch is taken before anything asks whether the batch holds an element."""

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

    def measured(self: ToyLinear, x: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        x.detach().abs().amax()
        return forward(self, x, *arguments, **options)

    with patched(ToyLinear, "forward", measured):
        yield provider


FAULT = Fault(
    name="empty_amax",
    breaks="an empty batch is an error: an amax over no element",
    caught_by="error.unexpected",
    apply=_apply,
    where={"case": "amax_edges", "variant": "empty"},
)
