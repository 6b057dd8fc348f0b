"""The recipe's ``amax_epsilon`` never reaches the quantiser."""

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

    def without(amax: torch.Tensor, fp8_max: float, *, epsilon: float, power_of_2: bool) -> torch.Tensor:
        del epsilon
        return encode_scale(amax, fp8_max, epsilon=0.0, power_of_2=power_of_2)

    with patched(quantizer, "encode_scale", without):
        yield provider


FAULT = Fault(
    name="amax_epsilon_ignored",
    breaks="amax_epsilon has no effect",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "recipe_switch", "variant": "inside"},
)
