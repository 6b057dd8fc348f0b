"""A region leaves Python's garbage collector switched off: memory of cycles, programs among them, is not given back.

Real code: a collector that is paused while a CUDA graph is captured, and not started again on one of the ways out.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = gc.isenabled()
    with exit_fault(gc.disable, gc.enable if before else gc.disable)(provider) as broken:
        yield broken


FAULT = Fault(
    name="gc_left_off",
    breaks="the garbage collector is left switched off",
    caught_by="state.unchanged",
    apply=_apply,
)
