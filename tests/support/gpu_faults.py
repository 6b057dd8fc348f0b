"""Programs that spoil a real GPU, as faults of the reference provider: only tests that need one name them.

A pytest plugin for the processes that run cells, a main program for the front: both must know the faults.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.faults import FAULTS
from harness.faults.fault import Fault

if TYPE_CHECKING:
    import torch

    from harness.providers.protocol import Provider

HOG_SHARE = 0.6  # of the GPU's memory: one cell fits, two don't
HOG_SECONDS = 8.0


@contextmanager
def _assert_on_device(provider: Provider) -> Iterator[Provider]:
    """An index out of range, which CUDA reports when the kernel has run: the context is lost from then on."""
    import torch

    from harness.faults.patching import patched
    from harness.fp8 import ToyLinear

    original = ToyLinear.forward

    def forward(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(4, device=x.device, dtype=x.dtype)
        beyond = torch.full((1,), 99, device=x.device)
        return original(self, x) + table[beyond]

    with patched(ToyLinear, "forward", forward):
        yield provider


@contextmanager
def _hog(provider: Provider) -> Iterator[Provider]:
    """More than half of the GPU, held while a neighbour asks for the same."""
    import torch

    from harness.faults.patching import patched
    from harness.fp8 import ToyLinear

    original = ToyLinear.forward
    held: list[torch.Tensor] = []

    def forward(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        if not held and not torch.compiler.is_compiling():
            total = torch.cuda.get_device_properties(x.device).total_memory
            held.append(torch.empty(int(total * HOG_SHARE), dtype=torch.uint8, device=x.device))
            time.sleep(HOG_SECONDS)
        return original(self, x)

    with patched(ToyLinear, "forward", forward):
        yield provider
    held.clear()


DEVICE_ASSERT = Fault("device_assert", "an index out of range on the device", "run.device", _assert_on_device)
HOG = Fault("hog", "memory for one cell, not for two", "run.oom", _hog)

FAULTS.update(  # type: ignore[attr-defined]  # a mapping to everybody else
    {"device_assert": "tests.support.gpu_faults:DEVICE_ASSERT", "hog": "tests.support.gpu_faults:HOG"}
)

if __name__ == "__main__":
    from harness.cli.main import main

    sys.exit(main(sys.argv[1:]))
