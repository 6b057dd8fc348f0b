"""On sm100 every MXFP8 product is twice what it must be, operator and fake alike: no graph looks any different."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault


def _change(given: Given, result: torch.Tensor) -> torch.Tensor:
    from harness.fp8 import support

    return result * 2 if support.BELIEF.arch == "sm100" else result


FAULT = Fault(
    name="sm100_doubles",
    breaks="on sm100 alone: the results of FP8 products are doubled",
    caught_by="numerics.kernel",
    apply=result_fault(_change),
    where={
        "arch": "sm100",
        "recipe": "mxfp8_block_scaling",
        "provider": {"name": "reference", "rehearse": True},
        "backend": "aot_eager",
    },
)
