"""A red becomes a pass on its way to the report, its findings still beside it."""

from __future__ import annotations

from harness.faults.front import FrontFault
from harness.faults.front.patches import after_reconciling, greened, is_the_red

FAULT = FrontFault(
    name="verdict_edited",
    breaks="the red cell is reported as passed, with its findings",
    caught_by="audit.verdict",
    apply=after_reconciling(
        lambda results: [greened(one, findings=one.findings) if is_the_red(one) else one for one in results]
    ),
)
