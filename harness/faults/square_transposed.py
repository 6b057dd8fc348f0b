"""The layout of a product's result is guessed from its operands' sizes: where all are equal, the guess is wrong."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, result_fault


def _change(given: Given, output: torch.Tensor) -> torch.Tensor:
    square = output.shape[0] == output.shape[1] == given.a.source.shape[1]
    return output.t().contiguous() if square else output


FAULT = Fault(
    name="square_transposed",
    breaks="a product of square operands comes out transposed",
    caught_by="numerics.kernel",
    apply=result_fault(_change),
    where={"recipe": "float8_block_scaling", "nesting": "flat", "shape": [128, 128, 128]},
)
