"""What the faults of a scale's edge cases share: ``encode_scale`` with one of its guards taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from harness.faults.patching import patched
from harness.providers.protocol import Provider


def unguarded(
    where: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[Provider], AbstractContextManager[Provider]]:
    """An ``apply`` for a fault in which the scale of an amax for which ``where`` holds is the bare quotient
    fp8_max / amax (float32, no replacement of infinity, no replacement of what an amax of zero or infinity gives)."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8 import quantizer

        guarded = quantizer.encode_scale

        def encode_scale(amax: torch.Tensor, fp8_max: float, *, epsilon: float, power_of_2: bool) -> torch.Tensor:
            scale = guarded(amax, fp8_max, epsilon=epsilon, power_of_2=power_of_2)
            return torch.where(where(amax), torch.full_like(amax, fp8_max) / amax, scale)

        with patched(quantizer, "encode_scale", encode_scale):
            yield provider

    return apply
