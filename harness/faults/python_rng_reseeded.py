"""A region leaves Python's own generator seeded anew: the user's shuffling and augmentation repeat themselves.

Real code: a helper that seeds "everything" for the sake of one random sign, as many training scripts have.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = random.getstate()
    with exit_fault(lambda: random.seed(0), lambda: random.setstate(before))(provider) as broken:
        yield broken


FAULT = Fault(
    name="python_rng_reseeded",
    breaks="Python's generator is seeded anew as a region is left",
    caught_by="state.unchanged",
    apply=_apply,
)
