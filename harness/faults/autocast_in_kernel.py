"""torch.autocast reaches into the operators, and rounds what a kernel keeps in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops

    def inside(device: str) -> AbstractContextManager[Any]:
        del device
        return nullcontext()

    with patched(ops, "outside_autocast", inside):
        yield provider


FAULT = Fault(
    name="autocast_in_kernel",
    breaks="operators compute under torch.autocast what they mean to compute in float32",
    caught_by="numerics.kernel",
    apply=_apply,
    # A native kernel leaves torch.autocast nothing to round, and torch 2.11 keeps it out of operators by itself.
    where={"case": "amp", "variant": "around", "arch": "cpu", "recipe": "float8_rowwise_scaling"},
    needs="torch>=2.13",
)
