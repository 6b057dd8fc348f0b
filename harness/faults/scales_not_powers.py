"""Block scales are not rounded to powers of two, though the recipe keeps them so (``use_f32_scales=False``)."""

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

    encode_scale = quantizer.encode_scale

    def exact(amax: torch.Tensor, fp8_max: float, *, epsilon: float, power_of_2: bool) -> torch.Tensor:
        del power_of_2
        return encode_scale(amax, fp8_max, epsilon=epsilon, power_of_2=False)

    with patched(quantizer, "encode_scale", exact):
        yield provider


FAULT = Fault(
    name="scales_not_powers",
    breaks="scales that should be powers of two are not",
    caught_by="numerics.scales",
    apply=_apply,
    where={"recipe": "float8_block_scaling", "nesting": "flat", "fullgraph": False},
)
