"""junit.xml, by which CI systems go, has no failure in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.front import FrontFault
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.report import junit

    with patched(junit, "_outcome", lambda result: ("", "")):
        yield


FAULT = FrontFault(
    name="junit_without_failures",
    breaks="each cell is a passed test case in junit.xml",
    caught_by="audit.counts",
    apply=_apply,
)
