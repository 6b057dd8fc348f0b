"""The update at a region's exit switches gradients off by a call, not by a context manager, and they stay off.

Real code: an update of scales or weights that was written as ``torch.set_grad_enabled(False)`` ... ``(True)``, with a
return in between.
"""

from __future__ import annotations

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="grad_mode_left_off",
    breaks="gradients are off after a region was left",
    caught_by="state.unchanged",
    apply=exit_fault(lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
)
