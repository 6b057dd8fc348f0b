"""What a kernel loses that multiplies the decode scales of its two operands before it applies them.

The product of two float32 numbers is off by 2^-24 of itself, which any accumulator's bound covers, or, below 2^-126, by
up to half a step between subnormal numbers: 2^-150. That is common to all elements of a scale block, not a rounding of
each. cuBLAS does it: for decode scales 2^-128 and 2^-13.8, whose product float32 holds as 0.99805 of itself, an H200
gave 0.99772 of the exact result, and for any other pair the same 0.99967 of what the rounded product gives, which is
the accumulation's share (torch 2.11, CUDA 13.0; docs/results/2026-12-02-h200.md).
"""

from __future__ import annotations

import math

import torch

from harness.judge.formats import FORMATS
from harness.judge.oracle import OracleOperand, decode
from harness.providers.protocol import Operand

SMALLEST_NORMAL = math.ldexp(1.0, -126)
HALF_STEP = math.ldexp(1.0, -150)


def scale_product_bound(a: Operand | OracleOperand, b: Operand | OracleOperand) -> torch.Tensor | None:
    """Largest error of a product from its scales' product, (rows of a, rows of b) float64; None where it is nothing.

    2^-150 times sum_k |code of a| |code of b|. Codes of NVFP4 count with their block's E4M3 scale: the float32 factor
    is the tensor's global scale there.
    """
    if _smallest_scale(a) * _smallest_scale(b) >= SMALLEST_NORMAL:
        return None
    return HALF_STEP * (_unscaled(a) @ _unscaled(b).t())


def _smallest_scale(operand: Operand | OracleOperand) -> float:
    scale = operand.scale if operand.global_scale is None else operand.global_scale
    used = scale[scale > 0]
    return float(used.min()) if used.numel() else 1.0


def _unscaled(operand: Operand | OracleOperand) -> torch.Tensor:
    """Magnitudes of the elements without their float32 factor, (rows, reduced) float64."""
    scale = torch.ones_like(operand.scale) if operand.global_scale is None else operand.scale
    rows, columns = operand.block
    return decode(operand.codes, scale, FORMATS[operand.format], (rows, columns)).abs()
