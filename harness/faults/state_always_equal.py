"""The harness: two snapshots are equal, whatever they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe import recorder

    with patched(recorder, "diff", lambda before, after, moment: ()):
        yield provider


FAULT = Fault(
    name="state_always_equal",
    breaks="the comparison of states finds no difference, ever",
    caught_by="state.observed",
    apply=_apply,
)
