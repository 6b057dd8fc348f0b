"""Totals count expected failures and skips among what passed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from harness.faults.front import FrontFault
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.report import run_info

    honest = run_info.totals

    def totals(results: Any) -> Any:
        counted = honest(results)
        verdicts = dict(counted.by_verdict)
        verdicts["pass"] += verdicts["xfail"] + verdicts["skip"]
        return replace(counted, by_verdict={**verdicts, "xfail": 0, "skip": 0})

    with patched(run_info, "totals", totals):
        yield


FAULT = FrontFault(
    name="xfail_counted_as_pass",
    breaks="xfail and skip are added to pass in the totals",
    caught_by="audit.counts",
    apply=_apply,
)
