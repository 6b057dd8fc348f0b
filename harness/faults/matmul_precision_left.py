"""The library allows TF32 for the whole process when its first region is left, where it meant its own products.

Real code: ``torch.set_float32_matmul_precision("high")`` on a module's first use, a performance hint that many
libraries set for everyone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = torch.get_float32_matmul_precision()
    leave = exit_fault(
        lambda: torch.set_float32_matmul_precision("high"), lambda: torch.set_float32_matmul_precision(before)
    )
    with leave(provider) as broken:
        yield broken


FAULT = Fault(
    name="matmul_precision_left",
    breaks="the precision of everyone's float32 products is left lower",
    caught_by="state.unchanged",
    apply=_apply,
)
