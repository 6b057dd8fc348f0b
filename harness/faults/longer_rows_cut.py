"""Rows that are longer than the weight's are cut to its length: the rest of the input is never read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import shapes

    wanted = shapes.in_compute_dtype

    def cut(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return wanted(x[:, : weight.shape[1]], weight)

    with patched(shapes, "in_compute_dtype", cut):
        yield provider


FAULT = Fault(
    name="longer_rows_cut",
    breaks="an input wider than the weight is taken",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "microbatch", "variant": "flag"},
)
