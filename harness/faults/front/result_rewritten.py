"""A red becomes a spotless pass on its way to the report."""

from __future__ import annotations

from harness.faults.front import FrontFault
from harness.faults.front.patches import after_reconciling, greened, is_the_red

FAULT = FrontFault(
    name="result_rewritten",
    breaks="the red cell is reported as passed, and nothing in its result says otherwise",
    caught_by="audit.verdict",
    apply=after_reconciling(lambda results: [greened(one) if is_the_red(one) else one for one in results]),
)
