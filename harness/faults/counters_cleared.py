"""Each product zeroes Dynamo's counters: eager frames and breaks that were counted before it are gone.

Real code: telemetry that reads the counters and clears them for its next interval.
"""

from __future__ import annotations

from typing import Any

from harness import torch_compat
from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault


def _report(given: Given, multiply: Multiply) -> Any:
    torch_compat.clear_dynamo_counters()
    return multiply(given)


FAULT = Fault(
    name="counters_cleared",
    breaks="what torch.compile counted is cleared while the program runs",
    caught_by="observe.complete",
    apply=product_fault(_report),
    where={"fullgraph": False},
)
