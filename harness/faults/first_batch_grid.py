"""The amax kernel is launched over as many rows as the first batch had: the rest of a larger batch is not looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.faults.quantising import requantised
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops
    from harness.fp8.quantizer import INPUT, Quantized

    quantize = ops.quantize  # type: ignore[attr-defined]  # looked up there by every operator
    before: list[str] = [""]  # role of the operand quantised last: an input that comes first of its product is fprop's
    grid: list[int] = []

    def over_first_rows(source: torch.Tensor, role: str, *arguments: Any) -> Quantized:
        given: Quantized = quantize(source, role, *arguments)
        fprop = role == INPUT and before[0] != "grad_output"
        before[0] = role
        if not fprop:
            return given
        if not grid:
            grid.append(source.shape[0])
        rows = grid[0]
        if given.block != (1, source.shape[1]) or rows >= source.shape[0]:
            return given
        decode = given.scale.clone()
        decode[rows:] = 1.0  # that of an amax of zero
        return requantised(given, 1 / decode, decode)

    with patched(ops, "quantize", over_first_rows):
        yield provider


FAULT = Fault(
    name="first_batch_grid",
    breaks="an input's rows have scales as far as the first batch had rows, and 1 beyond",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "dynamic_shapes", "variant": "varying", "recipe": "float8_rowwise_scaling"},
)
