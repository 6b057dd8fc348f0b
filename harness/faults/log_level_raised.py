"""A region leaves Dynamo's logger without its warnings: nobody learns that the recompile limit was hit and calls run
eagerly.

Real code: a noisy logger silenced around a call (``logging.disable`` is ``logging_disabled``).
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
    logger = logging.getLogger("torch._dynamo")
    before = logger.level
    with exit_fault(lambda: logger.setLevel(logging.CRITICAL), lambda: logger.setLevel(before))(provider) as broken:
        yield broken


FAULT = Fault(
    name="log_level_raised",
    breaks="Dynamo's logger is left silenced",
    caught_by="state.unchanged",
    apply=_apply,
)
