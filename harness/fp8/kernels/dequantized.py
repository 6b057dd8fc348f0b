"""Products of dequantised operands: the stand-in where the hardware has no kernel for a recipe. Evidence: emulated.

The dequantised operands are exact, and the product runs in float64, so that neither TF32 nor
``set_float32_matmul_precision`` changes it: what differs from a native kernel is the accumulator alone.
"""

from __future__ import annotations

import torch

from harness.fp8 import formats


def dequantize(data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Float64 values of float8 ``data`` (rows, k) with decode scales (r, c); a block is (rows / r, k / c)."""
    return _scaled(data.to(torch.float32), scale)


def product(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """a @ b.T of dequantised float8 operands, (R, C)."""
    return torch.mm(dequantize(a, scale_a), dequantize(b, scale_b).t()).to(out_dtype)


def product_nvfp4(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    global_a: torch.Tensor,
    global_b: torch.Tensor,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """a @ b.T of dequantised packed E2M1 operands, (R, C)."""
    left = _scaled(formats.e2m1_decode(formats.e2m1_unpack(a)), scale_a) * global_a.to(torch.float64)
    right = _scaled(formats.e2m1_decode(formats.e2m1_unpack(b)), scale_b) * global_b.to(torch.float64)
    return torch.mm(left, right.t()).to(out_dtype)


def _scaled(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    block = (values.shape[0] // scale.shape[0], values.shape[1] // scale.shape[1])
    per_element = formats.scale_values(scale).to(torch.float64)
    per_element = per_element.repeat_interleave(block[0], dim=0).repeat_interleave(block[1], dim=1)
    return values.to(torch.float64) * per_element
