"""A region leaves oneDNN switched off: every later product of the process on the CPU takes another kernel.

Real code: a kernel that must not be taken for one product is switched off for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


def _set(on: bool) -> None:
    torch.backends.mkldnn.enabled = on  # type: ignore[assignment]  # a property of the module's own class


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = bool(torch.backends.mkldnn.enabled)
    with exit_fault(lambda: _set(False), lambda: _set(before))(provider) as broken:
        yield broken


FAULT = Fault(
    name="mkldnn_left_off",
    breaks="oneDNN is left switched off",
    caught_by="state.unchanged",
    apply=_apply,
)
