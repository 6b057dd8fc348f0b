"""Reconciling forgets a cell: no result, and nobody misses it."""

from __future__ import annotations

from harness.faults.front import FrontFault
from harness.faults.front.patches import after_reconciling, is_the_red

FAULT = FrontFault(
    name="lost_cell",
    breaks="the red cell's result is dropped when processes' journals are reconciled",
    caught_by="audit.lost",
    apply=after_reconciling(lambda results: [one for one in results if not is_the_red(one)]),
    report="pytest-dev/pytest-xdist#784",
)
