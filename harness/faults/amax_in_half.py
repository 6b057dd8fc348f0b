"""The amax passes through float16: exact for ordinary data of bfloat16, infinite beyond 65504."""

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

    def narrow(source: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
        return block_amax(source, block).to(torch.float16).to(torch.float32)

    with patched(quantizer, "block_amax", narrow):
        yield provider


FAULT = Fault(
    name="amax_in_half",
    breaks="an amax beyond float16's range counts as infinite, so that its tensor is not scaled at all",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "amax_edges", "variant": "huge"},
)
