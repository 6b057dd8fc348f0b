"""The harness: the census takes each frame that fell back for a compiled one."""

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
    from harness.faults.print_in_linear import FAULT as BREAK
    from harness.observe.census import CensusObserver

    honest = CensusObserver.census

    def census(self: CensusObserver) -> Any:
        seen = honest(self)
        return replace(seen, frames_ok=seen.frames_total, breaks=(), counter_breaks=0, unimplemented=())

    with BREAK.apply(provider) as broken, patched(CensusObserver, "census", census):
        yield broken


FAULT = Fault(
    name="census_no_fallback",
    breaks="a program that breaks its graph, and a census that loses the frame, the break and its reason",
    caught_by="compile.graphs",
    apply=_apply,
    where={"fullgraph": False},
)
