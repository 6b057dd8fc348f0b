"""Making a layer leaves torch's default dtype at the layer's.

Real code: parameters that are made under ``torch.set_default_dtype(params_dtype)``, and an early return, or an
exception, before the old one is put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    make, before = provider.linear, torch.get_default_dtype()

    def making(*sizes: int, dtype: torch.dtype, **options: Any) -> torch.nn.Module:
        torch.set_default_dtype(dtype)
        return make(*sizes, dtype=dtype, **options)

    try:
        with patched(provider, "linear", making):
            yield provider
    finally:
        torch.set_default_dtype(before)


FAULT = Fault(
    name="default_dtype_left",
    breaks="torch's default dtype is left at that of the last layer made",
    caught_by="state.unchanged",
    apply=_apply,
)
