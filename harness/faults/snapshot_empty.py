"""The provider shows no state: whatever is left behind, two snapshots of nothing are equal.

Real code: an adapter that asks for the library's state where an older version kept it, and takes what it doesn't find
for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with patched(provider, "snapshot", dict):
        yield provider


FAULT = Fault(
    name="snapshot_empty",
    breaks="no state is shown, so that none can be compared",
    caught_by="state.observed",
    apply=_apply,
)
