"""The weight's gradient of an empty batch is NaN: a quotient by a number of rows, or memory that nothing wrote to.

Real code: a reduction over no element that a compiler turns into something else than its neutral element
(pytorch/pytorch#192709).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops

    zeros = ops.over_no_rows

    def divided(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        nothing = zeros(weight, dtype)
        return nothing / nothing

    with patched(ops, "over_no_rows", divided):
        yield provider


FAULT = Fault(
    name="empty_gradient_nan",
    breaks="an empty batch gives weights a gradient of NaN",
    caught_by="case.facts",
    apply=_apply,
    report="pytorch/pytorch#192709",
    where={"case": "amax_edges", "variant": "empty"},
)
