"""The harness: the census sees no frame at all."""

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
        return replace(honest(self), frames_total=0, frames_ok=0)

    with patched(CensusObserver, "census", census):
        yield provider


FAULT = Fault(
    name="census_no_frames",
    breaks="Dynamo's frame counters are read as zero, so that no frame can have fallen back",
    caught_by="observe.complete",
    apply=_apply,
    where={"fullgraph": False},
)
