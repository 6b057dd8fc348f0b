"""A region leaves warnings silenced for the process: what torch and the user's own code warn of is never seen.

Real code: ``warnings.simplefilter("ignore", UserWarning)`` around a noisy call, without ``warnings.catch_warnings``.
Not all classes at once: where the user runs with ``-W ignore`` that would leave the filters as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with warnings.catch_warnings():  # mends it
        with exit_fault(lambda: warnings.simplefilter("ignore", UserWarning), lambda: None)(provider) as broken:
            yield broken


FAULT = Fault(
    name="warnings_silenced",
    breaks="warnings are left silenced",
    caught_by="state.unchanged",
    apply=_apply,
)
