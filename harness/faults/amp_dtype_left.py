"""A region leaves ``torch.autocast``'s dtype at its own: mixed precision of everyone else runs in another dtype.

Real code: an FP8 region that sets the autocast dtype for the modules inside, and puts back what it believes to be the
default where it was something else.
"""

from __future__ import annotations

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="amp_dtype_left",
    breaks="torch.autocast's dtype is left at another one",
    caught_by="state.unchanged",
    apply=exit_fault(
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
    ),
)
