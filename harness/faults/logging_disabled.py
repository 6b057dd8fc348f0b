"""A region leaves logging switched off for the process: the compiler's warning of its recompile limit is never seen.

Real code: ``logging.disable`` around a noisy call, never undone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = logging.root.manager.disable
    with exit_fault(lambda: logging.disable(logging.CRITICAL), lambda: logging.disable(before))(provider) as broken:
        yield broken


FAULT = Fault(
    name="logging_disabled",
    breaks="logging is left switched off",
    caught_by="state.unchanged",
    apply=_apply,
)
