"""A result of a cell that is not in the plan stands in the report."""

from __future__ import annotations

from dataclasses import replace

from harness.faults.front import FrontFault
from harness.faults.front.patches import after_reconciling

FAULT = FrontFault(
    name="foreign_result",
    breaks="the report holds one more pass, of a cell that nobody planned",
    caught_by="audit.unplanned",
    apply=after_reconciling(lambda results: [*results, replace(results[0], id="toy_linear[recipe=of_another_plan]")]),
)
