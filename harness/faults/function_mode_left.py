"""A region leaves a device mode on torch's stack of function modes: every later factory call goes through it.

Real code: deferred initialisation that enters ``torch.device(...)`` by ``torch.set_default_device`` and never puts
back that there was none.
"""

from __future__ import annotations

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="function_mode_left",
    breaks="a default device, and with it a function mode, is left in force",
    caught_by="state.unchanged",
    apply=exit_fault(lambda: torch.set_default_device("cpu"), lambda: torch.set_default_device(None)),
)
