"""Under ``torch.autocast`` a layer computes in bfloat16, whichever dtype the user asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import shapes

    right = shapes.in_compute_dtype

    def in_bf16(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16) if torch.is_autocast_enabled(x.device.type) else right(x, weight)

    with patched(shapes, "in_compute_dtype", in_bf16):
        yield provider


FAULT = Fault(
    name="amp_always_bf16",
    breaks="torch.autocast(dtype=float16) computes in bfloat16",
    caught_by="numerics.program",
    apply=_apply,
    where={"case": "amp", "variant": "inside", "dtype": "float16", "arch": "cpu"},
)
