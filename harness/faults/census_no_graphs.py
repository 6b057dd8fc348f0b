"""The harness: the census loses a graph."""

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
        return replace(honest(self), graphs=max(honest(self).graphs - 1, 0))

    with patched(CensusObserver, "census", census):
        yield provider


FAULT = Fault(
    name="census_no_graphs",
    breaks="one forward graph is not counted",
    caught_by="compile.graphs",
    apply=_apply,
)
