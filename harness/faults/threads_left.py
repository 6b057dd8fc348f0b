"""A region leaves the process with another number of threads.

Real code: a CPU kernel that sets the number which suits it, for everyone and for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = torch.get_num_threads()
    leave = exit_fault(lambda: torch.set_num_threads(before + 1), lambda: torch.set_num_threads(before))
    with leave(provider) as broken:
        yield broken


FAULT = Fault(
    name="threads_left",
    breaks="torch's number of threads is left changed",
    caught_by="state.unchanged",
    apply=_apply,
)
