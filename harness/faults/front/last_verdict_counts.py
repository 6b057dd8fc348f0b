"""A cell is recorded twice, and the last word counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.front import FrontFault
from harness.faults.front.patches import ended_twice
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.run import reconcile

    with ended_twice(), patched(reconcile, "_one_attempt", lambda cell, outcomes, machine: outcomes[-1].result):
        yield


FAULT = FrontFault(
    name="last_verdict_counts",
    breaks="of a cell that was recorded as failed and as passed, the pass is reported",
    caught_by="audit.twice",
    apply=_apply,
)
