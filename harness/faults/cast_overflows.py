"""The FP8 cast doesn't saturate: beyond its range E4M3 gives NaN and E5M2 infinity.

Real code: a cast of the framework's taken as it is, where devices and compilers disagree (pytorch/pytorch#178817). It
shows where a scale is of an earlier, smaller tensor.
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
    from harness.fp8.formats import E4M3, ElementFormat

    saturating = formats.cast_saturating
    # What lies nearer to the largest number than to the next one, were there one, still rounds to it.
    edge = {448.0: 464.0, 57344.0: 61440.0}

    def overflowing(values: torch.Tensor, target: ElementFormat) -> torch.Tensor:
        codes = saturating(values, target).view(torch.uint8)
        special = 0x7F if target is E4M3 else 0x7C  # NaN, infinity
        beyond = torch.full_like(codes, special) | (codes & 0x80)
        return torch.where(values.abs() > edge[target.max], beyond, codes).view(target.dtype)

    with patched(formats, "cast_saturating", overflowing):
        yield provider


FAULT = Fault(
    name="cast_overflows",
    breaks="values beyond the format's range become NaN or infinity",
    caught_by="numerics.finite",
    apply=_apply,
    report="pytorch/pytorch#178817",
    where={"case": "delayed_scaling", "variant": "inside", "recipe": "delayed_scaling"},
)
