"""FP8 and FP4 products on CUDA: cuBLASLt and CUTLASS through torch. Operands are row-major, multiples of 16."""

from __future__ import annotations

import importlib.util

import torch

from harness import torch_compat
from harness.fp8.kernels import dequantized, layouts


def tensorwise(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """float8 (R, K) and (C, K) with one decode scale each; (R, C)."""
    return torch_compat.scaled_mm(a, b, scale_a.reshape(()), scale_b.reshape(()), out_dtype)


def rowwise(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """float8 (R, K) and (C, K) with decode scales (R, 1) and (C, 1); (R, C)."""
    return torch_compat.scaled_mm(a, b, scale_a.contiguous(), scale_b.reshape(1, -1).contiguous(), out_dtype)


def block(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """e4m3, A in 1x128 blocks, B in 1x128 or 128x128. Hopper only."""
    one_dimensional = scale_b.shape[0] == b.shape[0]
    laid_b = layouts.outer_major(scale_b) if one_dimensional else layouts.block_128x128(scale_b)
    kind_b = "1x128" if one_dimensional else "128x128"
    return torch_compat.scaled_mm_block(a, b, layouts.outer_major(scale_a), laid_b, kind_b, out_dtype)


def mxfp8(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """1x32 blocks with float8_e8m0fnu scales (R, K / 32) and (C, K / 32). Compute capability 10.x."""
    laid_a, laid_b = layouts.swizzle_32_4_4(scale_a), layouts.swizzle_32_4_4(scale_b)
    return torch_compat.scaled_mm_mxfp8(a, b, laid_a, laid_b, out_dtype)


def mxfp8_by_triton(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """As :func:`mxfp8` on other GPUs, through Triton's scaled dot; dequantised where Triton is missing. Emulated."""
    if importlib.util.find_spec("triton") is None:
        return dequantized.product(a, b, scale_a, scale_b, out_dtype)
    from harness.fp8.kernels.triton_mx import product

    return product(a, b, scale_a, scale_b, out_dtype)


def nvfp4(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    global_a: torch.Tensor,
    global_b: torch.Tensor,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """Packed E2M1 as uint8, float8_e4m3fn block scales, float32 tensor scales. Compute capability 10.0 and higher."""
    laid_a = layouts.swizzle_32_4_4(layouts.expand_rows(scale_a, a.shape[0]))
    laid_b = layouts.swizzle_32_4_4(layouts.expand_rows(scale_b, b.shape[0]))
    return torch_compat.scaled_mm_nvfp4(a, b, laid_a, laid_b, global_a, global_b, out_dtype)
