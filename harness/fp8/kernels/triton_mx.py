"""MXFP8 products through Triton's scaled dot, for GPUs without a native MXFP8 GEMM. Evidence: emulated.

On sm_90 Triton widens both operands to bf16, which holds an E4M3 or E5M2 value times a power of two exactly, and
accumulates in float32. Imported only where a CUDA tensor needs it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 128
_FORMATS = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}


@triton.jit  # type: ignore[untyped-decorator]
def scaled_dot_kernel(  # type: ignore[no-untyped-def]  # Triton would compile the annotations
    a_ptr,
    b_ptr,
    scale_a_ptr,
    scale_b_ptr,
    out_ptr,
    rows,
    columns,
    k,
    format_a: tl.constexpr,
    format_b: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
):
    """out[r, c] = sum_k a[r, k] b[c, k]; bytes of codes (rows, k) and E8M0 scales (rows, k / 32), all row-major."""
    row = tl.program_id(0) * block_m + tl.arange(0, block_m)
    column = tl.program_id(1) * block_n + tl.arange(0, block_n)
    groups = k // 32
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for start in range(0, k, block_k):
        step = start + tl.arange(0, block_k)
        group = start // 32 + tl.arange(0, block_k // 32)
        # Codes past an edge read as zero, scales past it as 127 = 2^0: they add nothing.
        mask_a = (row[:, None] < rows) & (step[None, :] < k)
        mask_b = (step[:, None] < k) & (column[None, :] < columns)
        a = tl.load(a_ptr + row[:, None] * k + step[None, :], mask=mask_a, other=0)
        b = tl.load(b_ptr + column[None, :] * k + step[:, None], mask=mask_b, other=0)
        in_a = (row[:, None] < rows) & (group[None, :] < groups)
        in_b = (column[:, None] < columns) & (group[None, :] < groups)
        scale_a = tl.load(scale_a_ptr + row[:, None] * groups + group[None, :], mask=in_a, other=127)
        scale_b = tl.load(scale_b_ptr + column[:, None] * groups + group[None, :], mask=in_b, other=127)
        total = tl.dot_scaled(a, scale_a, format_a, b, scale_b, format_b, total)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    out = total.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row[:, None] * columns + column[None, :], out, mask=inside)


def product(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """float8 (R, K) and (C, K) with float8_e8m0fnu scales (R, K / 32) and (C, K / 32); (R, C)."""
    rows, k = a.shape
    columns = b.shape[0]
    out = torch.empty(rows, columns, dtype=out_dtype, device=a.device)
    grid = (triton.cdiv(rows, BLOCK_M), triton.cdiv(columns, BLOCK_N))
    with torch.cuda.device(a.device):
        scaled_dot_kernel[grid](
            a.contiguous().view(torch.uint8),
            b.contiguous().view(torch.uint8),
            scale_a.contiguous().view(torch.uint8),
            scale_b.contiguous().view(torch.uint8),
            out,
            rows,
            columns,
            k,
            format_a=_FORMATS[a.dtype],
            format_b=_FORMATS[b.dtype],
            block_m=BLOCK_M,
            block_n=BLOCK_N,
            block_k=BLOCK_K,
        )
    return out
