"""The harness: the clock runs backwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe import executed, recorder

    ticks = itertools.count(1_000_000, -1)
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    with patched(recorder, "time", clock), patched(executed, "time", clock):
        yield provider


FAULT = Fault(
    name="clock_backwards",
    breaks="what is measured with the clock is less than nothing",
    caught_by="observe.timing",
    apply=_apply,
)
