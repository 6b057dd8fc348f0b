"""The harness: compiled calls are made and not counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe.census import CensusObserver

    honest = CensusObserver.census

    def census(self: CensusObserver) -> Any:
        return replace(honest(self), calls=honest(self).calls[:1])

    with patched(CensusObserver, "census", census):
        yield provider


FAULT = Fault(
    name="census_no_calls",
    breaks="of the compiled calls only the first is observed",
    caught_by="observe.complete",
    apply=_apply,
)
