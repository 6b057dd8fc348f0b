"""A region leaves the CPU taking numbers below the smallest normal one for zero.

Real code: a CPU kernel that switches it on for its own loop, or a shared library that was linked with ``-ffast-math``
and switches it on for whoever loads it. Subnormal E8M0 scales (2^-127 is one) are then zero.
"""

from __future__ import annotations

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="denormals_flushed",
    breaks="the CPU flushes denormal numbers to zero after a region was left",
    caught_by="state.unchanged",
    apply=exit_fault(lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)),
)
