"""When the history changes its length, the gradient's part is given the input's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.delayed import DelayedTensors

    fit = DelayedTensors.fit

    def mixing(self: DelayedTensors, length: int, device: torch.device) -> None:
        resized = self.history.shape[0] != length
        fit(self, length, device)
        if resized:
            self.history[:, 2] = self.history[:, 0]

    with patched(DelayedTensors, "fit", mixing):
        yield provider


FAULT = Fault(
    name="resized_history_mixed",
    breaks="another amax_history_len mixes forward and backward histories up",
    caught_by="numerics.scales",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2620",
    where={"case": "delayed_scaling", "variant": "resized", "recipe": "delayed_scaling"},
)
