"""The run ends with 0 in spite of a red cell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.front import FrontFault
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.run import finish

    with patched(finish, "decide", lambda plan, state, **options: (0, "all as expected")):
        yield


FAULT = FrontFault(
    name="exit_zero",
    breaks="the exit code does not look at the results",
    caught_by="audit.exit_code",
    apply=_apply,
)
