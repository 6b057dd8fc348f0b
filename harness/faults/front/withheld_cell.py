"""The scheduler never hands out a cell."""

from __future__ import annotations

from harness.faults.front import FrontFault
from harness.faults.front.patches import withheld

FAULT = FrontFault(
    name="withheld_cell",
    breaks="the red cell is in the plan, and no process is ever told to run it",
    caught_by="run.not_run",
    apply=withheld,
)
