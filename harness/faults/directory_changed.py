"""A region leaves the process in another working directory: relative paths of the user's, checkpoints among them, lead
elsewhere.

Real code: ``os.chdir`` around a build of kernels, not undone on every way out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = os.getcwd()
    with exit_fault(lambda: os.chdir(os.sep), lambda: os.chdir(before))(provider) as broken:
        yield broken


FAULT = Fault(
    name="directory_changed",
    breaks="the working directory is another one",
    caught_by="state.unchanged",
    apply=_apply,
)
