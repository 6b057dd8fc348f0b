"""An amax is stored where it should be folded in: of a layer that runs twice in a region, the last run alone counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.delayed import DelayedTensors

    def stored(self: DelayedTensors, column: int, values: torch.Tensor) -> None:
        if values.numel():
            self.history[0, column] = values.abs().amax().to(torch.float32)

    with patched(DelayedTensors, "record", stored):
        yield provider


FAULT = Fault(
    name="amax_of_last_use",
    breaks="the amax of a layer's last use takes the place of a larger one",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "delayed_scaling", "variant": "shared", "recipe": "delayed_scaling", "backend": "eager"},
)
