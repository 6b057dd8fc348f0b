"""The real matrix products. A product is out[r, c] = sum_k A[r, k] * B[c, k] with both operands (rows, k), k last.

``tensorwise``, ``rowwise``, ``block``, ``mxfp8`` and ``nvfp4`` choose a kernel by the operands' device: ``cpu`` and
``cuda`` hold the FP8 kernels, ``dequantized`` and ``triton_mx`` the stand-ins that evidence calls emulated.
"""

from __future__ import annotations

import torch

from harness.fp8.kernels import cpu, cuda, dequantized


def tensorwise(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """float8 (R, K) and (C, K), decode scales float32 of one element; result (R, C)."""
    if a.is_cuda:
        return cuda.tensorwise(a, b, scale_a, scale_b, out_dtype)
    return cpu.tensorwise(a, b, scale_a, scale_b, out_dtype)


def rowwise(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """As :func:`tensorwise` with scales (R, 1) and (C, 1)."""
    if a.is_cuda:
        return cuda.rowwise(a, b, scale_a, scale_b, out_dtype)
    return cpu.rowwise(a, b, scale_a, scale_b, out_dtype)


def block(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """A in 1x128 blocks, B in 1x128 or 128x128 (told apart by the rows of ``scale_b``); scales float32."""
    if not a.is_cuda:
        return cpu.block(a, b, scale_a, scale_b, out_dtype)
    if torch.cuda.get_device_capability(a.device)[0] == 9:
        return cuda.block(a, b, scale_a, scale_b, out_dtype)
    return dequantized.product(a, b, scale_a, scale_b, out_dtype)


def mxfp8(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """1x32 blocks with float8_e8m0fnu scales (R, K / 32) and (C, K / 32)."""
    if not a.is_cuda:
        return dequantized.product(a, b, scale_a, scale_b, out_dtype)
    if torch.cuda.get_device_capability(a.device)[0] in (10, 11):
        return cuda.mxfp8(a, b, scale_a, scale_b, out_dtype)
    return cuda.mxfp8_by_triton(a, b, scale_a, scale_b, out_dtype)


def nvfp4(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    global_a: torch.Tensor,
    global_b: torch.Tensor,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """Packed E2M1 (R, K / 2) and (C, K / 2) as uint8, float8_e4m3fn scales (R, K / 16) and (C, K / 16), or (C / 16, K
    / 16) for 16x16 blocks, and one float32 decode scale per tensor.
    """
    if a.is_cuda and torch.cuda.get_device_capability(a.device)[0] >= 10:
        return cuda.nvfp4(a, b, scale_a, scale_b, global_a, global_b, out_dtype)
    return dequantized.product_nvfp4(a, b, scale_a, scale_b, global_a, global_b, out_dtype)
