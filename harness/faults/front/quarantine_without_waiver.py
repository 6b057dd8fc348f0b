"""A red cell stops gating, and no waiver says so."""

from __future__ import annotations

from dataclasses import replace

from harness.faults.front import FrontFault
from harness.faults.front.patches import after_reconciling, is_the_red

FAULT = FrontFault(
    name="quarantine_without_waiver",
    breaks="the red cell is taken for one in quarantine, which never decides the exit code",
    caught_by="audit.waiver",
    apply=after_reconciling(lambda results: [replace(one, gates=not is_the_red(one) and one.gates) for one in results]),
)
