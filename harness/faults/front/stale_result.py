"""A result of an earlier run is used again for a cell that did not run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.front import FrontFault
from harness.faults.front.patches import after_reconciling, greened, is_the_red, withheld
from harness.types import Evidence

_EARLIER = {"evidence": Evidence.NATIVE, "checks": ("numerics.codes",)}


@contextmanager
def _apply() -> Iterator[None]:
    reused = after_reconciling(
        lambda results: [greened(one, **_EARLIER) if is_the_red(one) else one for one in results]
    )
    with withheld(), reused():
        yield


FAULT = FrontFault(
    name="stale_result",
    breaks="the red cell is not run, and the pass of an earlier run is reported for it",
    caught_by="audit.journal",
    apply=_apply,
)
