"""A failed cell is not among what is red."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.front import FrontFault
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.types import Verdict

    green = (Verdict.PASS, Verdict.XFAIL, Verdict.SKIP, Verdict.FAIL)
    with patched(Verdict, "is_red", property(lambda self: self not in green)):
        yield


FAULT = FrontFault(
    name="fail_is_not_red",
    breaks="everything that asks whether a verdict is red is told that fail isn't",
    caught_by="audit.exit_code",
    apply=_apply,
)
