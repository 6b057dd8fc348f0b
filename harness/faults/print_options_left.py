"""A region leaves torch's print options changed: what the user prints afterwards has other digits.

Real code: a library that sets them for its own messages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from harness import torch_compat
from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = torch_compat.print_options()
    leave = functools.partial(torch_compat.set_print_options, {**before, "precision": 2})
    with exit_fault(leave, lambda: torch_compat.set_print_options(before))(provider) as broken:
        yield broken


FAULT = Fault(
    name="print_options_left",
    breaks="torch prints tensors in another way",
    caught_by="state.unchanged",
    apply=_apply,
)
