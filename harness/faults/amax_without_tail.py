"""The amax kernel stops before the last row: the rest of a tile that isn't full. Most tensors have their largest
element elsewhere, and then nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import quantizer

    block_amax = quantizer.block_amax

    def without_last_row(source: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
        if block != tuple(source.shape) or source.shape[0] < 2:
            return block_amax(source, block)
        return block_amax(source[:-1], (source.shape[0] - 1, source.shape[1]))

    with patched(quantizer, "block_amax", without_last_row):
        yield provider


FAULT = Fault(
    name="amax_without_tail",
    breaks="the last row of a tensor has no part in its amax",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "amax_edges", "variant": "largest_last"},
)
