"""A process records one cell twice, with other verdicts."""

from __future__ import annotations

from harness.faults.front import FrontFault
from harness.faults.front.patches import ended_twice

FAULT = FrontFault(
    name="reported_twice",
    breaks="the red cell is recorded once more, as passed, by the process that ran it",
    caught_by="run.flaky",
    apply=ended_twice,
)
