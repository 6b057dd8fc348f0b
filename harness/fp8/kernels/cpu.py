"""FP8 products on the CPU, through ``_scaled_mm``.

What torch does inside, as measured on 2.13 and 2.14 (AVX-512, one thread): per-tensor E4M3 x E4M3 goes to a reference
primitive of oneDNN, 150 ms for 128 x 128 x 128; everything else is converted to float32 and multiplied, 0.3 ms. So
per-tensor scales are passed as one scale a row, which says the same. torch 2.11 knows per-tensor scales only: there
the products of the codes are scaled afterwards.
"""

from __future__ import annotations

import torch

from harness import torch_compat

BLOCK_K = 128


def tensorwise(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """float8 (R, K) and (C, K) with one decode scale each; (R, C)."""
    rows_a = scale_a.reshape(1, 1).expand(a.shape[0], 1)
    rows_b = scale_b.reshape(1, 1).expand(b.shape[0], 1)
    return rowwise(a, b, rows_a, rows_b, out_dtype)


def rowwise(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """float8 (R, K) and (C, K) with decode scales (R, 1) and (C, 1); (R, C)."""
    columns = scale_b.reshape(1, -1)
    if torch_compat.cpu_scales_rows():
        return torch_compat.scaled_mm(a, b, scale_a.contiguous(), columns.contiguous(), out_dtype)
    one = torch.ones((), dtype=torch.float32, device=a.device)
    return (torch_compat.scaled_mm(a, b, one, one, torch.float32) * scale_a * columns).to(out_dtype)


def block(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """A in 1x128 blocks, B in 1x128 or 128x128: one per-row FP8 product for each 128 of K, summed in float32.

    Within a block of K every row has one scale, so this is the recipe's arithmetic on FP8 kernels, promoted to
    float32 every 128 products as on Hopper (arXiv:2412.19437, section 3.3.2).
    """
    rows_b = scale_b.repeat_interleave(b.shape[0] // scale_b.shape[0], dim=0)
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float32, device=a.device)
    for index in range(a.shape[1] // BLOCK_K):
        columns = slice(index * BLOCK_K, (index + 1) * BLOCK_K)
        part_a, part_b = a[:, columns].contiguous(), b[:, columns].contiguous()
        total += rowwise(part_a, part_b, scale_a[:, index : index + 1], rows_b[:, index : index + 1], torch.float32)
    return total.to(out_dtype)
