"""The harness: no gradient is observed, of any run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe import run

    with patched(run, "_gradients", lambda program, inputs: {}):
        yield provider


FAULT = Fault(
    name="observed_no_gradients",
    breaks="the observer looks at outputs alone",
    caught_by="numerics.program",
    apply=_apply,
)
