"""The cast does not saturate: what is beyond the format's range becomes NaN (E4M3 has no infinity) or infinity (E5M2).

Only scales from earlier steps, or rounded down, leave anything beyond the range: delayed scaling as its data grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import formats

    saturating = formats.cast_saturating

    def cast(values: torch.Tensor, target: formats.ElementFormat) -> torch.Tensor:
        # E4M3FN's 0x7f is its NaN, E5M2's 0x7c its infinity; beyond half a step over the largest value they begin.
        over, step = (0x7F, 32.0) if target.name == "e4m3" else (0x7C, 8192.0)
        codes = saturating(values, target).view(torch.uint8)
        beyond = torch.full_like(codes, over) | (codes & 0x80)
        overflows = values.abs() > target.max + step / 2
        return torch.where(overflows, beyond, codes).view(target.dtype)

    with patched(formats, "cast_saturating", cast):
        yield provider


FAULT = Fault(
    name="saturation_missing",
    breaks="casts overflow to NaN or infinity instead of saturating",
    caught_by="numerics.finite",
    apply=_apply,
    report="pytorch/pytorch#178817",
    where={"case": "delayed_scaling", "variant": "inside", "recipe": "delayed_scaling"},
)
