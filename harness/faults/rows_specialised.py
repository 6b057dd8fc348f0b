"""The number of rows is made a Python number on the way: each new batch size is compiled again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    forward = ToyLinear.forward

    def counted(self: ToyLinear, x: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        rows = index(x.shape[0])
        return forward(self, x, *arguments, **options) if rows else x.new_zeros(0, self.out_features)

    with patched(ToyLinear, "forward", counted):
        yield provider


FAULT = Fault(
    name="rows_specialised",
    breaks="a graph for each batch size: the number of rows is a constant of the graph",
    caught_by="compile.graphs",
    apply=_apply,
    where={"case": "dynamic_shapes", "variant": "varying"},
)
