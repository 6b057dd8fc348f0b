"""The FP8 kernel is replaced by a product of dequantised operands, and nobody says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness import torch_compat
from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _dequantised(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    left, right = a.to(torch.float32), b.to(torch.float32).t()
    return ((left @ right) * scale_a.reshape(-1, 1) * scale_b.reshape(1, -1)).to(out_dtype)


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with patched(torch_compat, "scaled_mm", _dequantised):
        yield provider


FAULT = Fault(
    name="emulated_as_native",
    breaks="dequantised operands are multiplied while the provider says native",
    caught_by="fp8.gemms",
    apply=_apply,
)
