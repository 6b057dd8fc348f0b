"""A region leaves hooks on the tensors that autograd saves: each tensor that anyone saves later goes through them.

Real code: offloading of activations, which is switched on by the region and off by an event that doesn't come.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from harness.faults.at_exit import entered_at_exit
from harness.faults.fault import Fault


def _hooks() -> AbstractContextManager[Any]:
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


FAULT = Fault(
    name="saved_tensor_hooks_left",
    breaks="hooks on saved tensors are left in force",
    caught_by="state.unchanged",
    apply=entered_at_exit(_hooks),
)
