"""results.jsonl ends in the middle of a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.faults.front import FrontFault
from harness.faults.patching import patched

LOST = 40  # bytes


@contextmanager
def _apply() -> Iterator[None]:
    from harness.report import render, store

    def write_results(directory: Path, results: Any) -> None:
        store.write_results(directory, results)
        path = directory / store.RESULTS
        path.write_bytes(path.read_bytes()[:-LOST])

    with patched(render, "write_results", write_results):
        yield


FAULT = FrontFault(
    name="results_cut_short",
    breaks="the end of results.jsonl is lost after it was written",
    caught_by="audit.files",
    apply=_apply,
)
