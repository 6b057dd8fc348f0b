"""A layer never returns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider

FOREVER = 3600.0


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import ToyLinear

    def sleep(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        time.sleep(FOREVER)
        return x

    with patched(ToyLinear, "forward", sleep):
        yield provider


FAULT = Fault(name="hang", breaks="a call that never ends", caught_by="run.timeout", apply=_apply)
