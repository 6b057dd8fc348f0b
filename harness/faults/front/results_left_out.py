"""Whole lines are missing from results.jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.faults.front import FrontFault
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.report import render, store

    def write_results(directory: Path, results: Any) -> None:
        store.write_results(directory, [result for result in results if not result.verdict.is_red])

    with patched(render, "write_results", write_results):
        yield


FAULT = FrontFault(
    name="results_left_out",
    breaks="red results are not written to results.jsonl",
    caught_by="audit.lost",
    apply=_apply,
)
