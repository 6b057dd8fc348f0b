"""Under torch.autocast a layer is torch's linear: that one's low precision wins over FP8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.linear import ToyLinear

    run = ToyLinear.forward

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled(x.device.type):
            return functional.linear(x, self.weight, self.bias)
        return run(self, x)

    with patched(ToyLinear, "forward", forward):
        yield provider


FAULT = Fault(
    name="bf16_under_amp",
    breaks="FP8 is left out under torch.autocast",
    caught_by="fp8.gemms",
    apply=_apply,
    where={"case": "amp", "variant": "in_region"},
)
