"""The library switches compilation off for the process: even fullgraph=True runs everything in Python, silently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.seams import BOTH
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with torch.compiler.set_stance("force_eager"):
        yield provider


FAULT = Fault(
    name="compilation_off",
    breaks="nothing is compiled, with no exception under fullgraph and no counter that moves",
    caught_by="compile.captured",
    apply=_apply,
    report="pytorch/pytorch#161790",
    providers=BOTH,
)
