"""A red cell is retried, though nothing but its verdict asks for it, and the retry counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.front import FrontFault
from harness.faults.front.patches import ended_twice
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.run import reconcile
    from harness.types import Verdict

    with ended_twice(attempt=2), patched(reconcile, "RETRIED", (*reconcile.RETRIED, Verdict.FAIL)):
        yield


FAULT = FrontFault(
    name="retried_until_green",
    breaks="a cell that failed is run again like one that ran out of memory, and its second verdict stands",
    caught_by="audit.twice",
    apply=_apply,
)
