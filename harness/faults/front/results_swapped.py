"""A cell is reported with another cell's result."""

from __future__ import annotations

from dataclasses import replace

from harness.faults.front import FrontFault
from harness.faults.front.patches import after_reconciling, is_the_red

FAULT = FrontFault(
    name="results_swapped",
    breaks="under the red cell's id stands the result of a cell that passed",
    caught_by="audit.unplanned",
    apply=after_reconciling(
        lambda results: [replace(results[0], id=one.id) if is_the_red(one) else one for one in results]
    ),
)
