"""Whether the device can run the recipe is asked by the first layer: the region opens, and what comes before that layer
runs.

Real code: a check in the module's forward, or in the GEMM, where the documentation has it at the region's entry.
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
    from harness.fp8 import FP8GlobalStateManager, ToyLinear, support

    forward, require = ToyLinear.forward, support.require

    def asking(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        if FP8GlobalStateManager.is_fp8_enabled():
            require(FP8GlobalStateManager.get_fp8_recipe(), support.current_device())
        return forward(self, x)

    with patched(support, "require", lambda recipe, device: None), patched(ToyLinear, "forward", asking):
        yield provider


FAULT = Fault(
    name="refusal_in_layer",
    breaks="an unsupported recipe is refused by the first layer, not when its region is entered",
    caught_by="error.negative",
    apply=_apply,
    where={
        "provider": {"name": "reference", "emulate": False},
        "recipe": "mxfp8_block_scaling",
        "arch": "sm90",
    },
)
