"""The required evidence is met by a pass that nobody judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.front import FrontFault, matrix
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.report import evidence, require
    from harness.types import Verdict

    with patched(require, "_counts", lambda cell: cell.verdict is Verdict.PASS), patched(evidence, "fp8_judged", bool):
        yield


FAULT = FrontFault(
    name="require_met_unjudged",
    breaks="a pass earns the evidence level although its FP8 arithmetic was not held against the oracle",
    caught_by="audit.require",
    apply=_apply,
    matrix=matrix({"data": "heavy_tailed"}),
)
