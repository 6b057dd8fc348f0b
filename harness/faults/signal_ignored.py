"""A region leaves a signal's handler replaced: a scheduler's request to save and stop is never heard.

Real code: signals that are blocked while kernels are built, and not given back.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    asked = signal.SIGUSR1
    before = signal.getsignal(asked)
    leave = functools.partial(signal.signal, asked, signal.SIG_IGN)
    with exit_fault(leave, lambda: signal.signal(asked, before))(provider) as broken:
        yield broken


FAULT = Fault(
    name="signal_ignored",
    breaks="a signal's handler is left replaced",
    caught_by="state.unchanged",
    apply=_apply,
)
