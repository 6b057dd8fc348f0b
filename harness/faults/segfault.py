"""The process dies in the middle of a layer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import ToyLinear

    def die(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGSEGV)
        return x

    with patched(ToyLinear, "forward", die):
        yield provider


FAULT = Fault(name="segfault", breaks="the worker dies of SIGSEGV", caught_by="run.crash", apply=_apply, dies="SIGSEGV")
