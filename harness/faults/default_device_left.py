"""A region leaves "meta" as torch's default device: every tensor that is made later without a device has no data.

Real code: layers that are made without memory, to be filled from a checkpoint, under ``torch.set_default_device``, and
an early return before the old device is put back.
"""

from __future__ import annotations

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="default_device_left",
    breaks="tensors that are made after a region, without naming a device, have no data",
    caught_by="state.unchanged",
    apply=exit_fault(lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
)
