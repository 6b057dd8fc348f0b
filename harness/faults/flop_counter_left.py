"""A region leaves torch's own counter of operations running: a dispatch mode, and hooks on every module there is.

Real code: an estimate of a step's FLOPs that enters ``torch.utils.flop_counter.FlopCounterMode`` and leaves it on an
event that doesn't come. The mode decomposes what passes through it, and nothing is compiled under it
(pytorch/pytorch#161790).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from harness.faults.at_exit import entered_at_exit
from harness.faults.fault import Fault


def _counter() -> AbstractContextManager[Any]:
    counter: AbstractContextManager[Any] = FlopCounterMode(display=False)
    return counter


FAULT = Fault(
    name="flop_counter_left",
    breaks="torch's counter of operations is left running, a dispatch mode and hooks on every module",
    caught_by="state.unchanged",
    apply=entered_at_exit(_counter),
    report="pytorch/pytorch#161790",
)
