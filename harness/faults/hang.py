"""A layer never returns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, layer_fault

if TYPE_CHECKING:
    import torch

FOREVER = 3600.0


def _sleeping(forward: Any) -> Any:
    del forward

    def sleep(self: Any, x: torch.Tensor) -> torch.Tensor:
        time.sleep(FOREVER)
        return x

    return sleep


FAULT = Fault(
    name="hang",
    breaks="a call that never ends",
    caught_by="run.timeout",
    apply=layer_fault(_sleeping),
    providers=BOTH,
)
