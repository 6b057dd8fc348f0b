"""Cells in quarantine run, and are then left out of the report."""

from __future__ import annotations

from harness.faults.front import FrontFault
from harness.faults.front.patches import after_reconciling

FAULT = FrontFault(
    name="quarantined_unreported",
    breaks="a quarantined red is nowhere to be seen",
    caught_by="audit.lost",
    apply=after_reconciling(lambda results: [one for one in results if one.gates]),
)
