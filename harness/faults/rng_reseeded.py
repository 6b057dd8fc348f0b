"""A region seeds torch's generators as it is entered: the user's later random numbers are those that he had before.

Real code: noise that must be the same in each run (stochastic rounding, a random sign of a Hadamard transform), drawn
after ``torch.manual_seed`` instead of from a generator of the library's own. Dropout then drops the same elements in
each step, and no result of an FP8 product tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.state import FP8GlobalStateManager

    enter = FP8GlobalStateManager.autocast_enter

    def seeding(**options: Any) -> None:
        if not torch.compiler.is_compiling():
            torch.manual_seed(0)
        enter(**options)

    with patched(FP8GlobalStateManager, "autocast_enter", staticmethod(seeding)):
        yield provider


FAULT = Fault(
    name="rng_reseeded",
    breaks="torch's generators are seeded anew as a region is entered in eager code",
    caught_by="state.unchanged",
    apply=_apply,
)
