"""Products are NaN while nobody listens to the tap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops, tap

    multiply = ops.multiply

    def shy(product: str, *arguments: object) -> torch.Tensor:
        output = multiply(product, *arguments)  # type: ignore[arg-type]
        return output if tap.active() else output * float("nan")

    with patched(ops, "multiply", shy):
        yield provider


FAULT = Fault(
    name="wrong_unwatched",
    breaks="results are right only while the tap is on",
    caught_by="numerics.later",
    apply=_apply,
)
