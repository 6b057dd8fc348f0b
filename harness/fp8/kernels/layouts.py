"""Scale layouts that CUDA kernels demand. Pure index arithmetic, the same on every device, so that the CPU tests it."""

from __future__ import annotations

import torch


def ceil_to(value: int, multiple: int) -> int:
    """``value`` rounded up to a multiple."""
    return -(-value // multiple) * multiple


def outer_major(scale: torch.Tensor) -> torch.Tensor:
    """1x128 scales (rows, K / 128) with strides (1, rows), as cuBLASLt reads them."""
    return scale.t().contiguous().t()


def block_128x128(scale: torch.Tensor) -> torch.Tensor:
    """128x128 scales (rows / 128, K / 128) as (ceil4(K / 128), rows / 128) with strides (1, ceil4(K / 128)).

    The padding of the K extent to a multiple of 4 is the kernel's demand; padded entries are never used.
    """
    rows, k = scale.shape
    padded = torch.zeros(rows, ceil_to(k, 4), dtype=scale.dtype, device=scale.device)
    padded[:, :k] = scale
    return padded.t()


def swizzle_32_4_4(scale: torch.Tensor) -> torch.Tensor:
    """One-byte scales (rows, k) in cuBLASLt's tiled order, flat: ceil128(rows) * ceil4(k) elements, padded with zero
    bytes.

    A 128 x 4 tile takes 512 bytes; within it row r, column c stands at (r % 32) * 16 + (r // 32) * 4 + c; tiles
    follow in row-major order (cuBLAS documentation, "1D block scaling factors layout").
    """
    rows, k = scale.shape
    row_tiles, k_tiles = ceil_to(rows, 128) // 128, ceil_to(k, 4) // 4
    padded = torch.zeros(row_tiles * 128, k_tiles * 4, dtype=torch.uint8, device=scale.device)
    padded[:rows, :k] = scale.view(torch.uint8)
    tiles = padded.reshape(row_tiles, 4, 32, k_tiles, 4).permute(0, 3, 2, 1, 4)
    return tiles.contiguous().reshape(-1).view(scale.dtype)


def unswizzle_32_4_4(flat: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    """Inverse of :func:`swizzle_32_4_4`: (rows, k) without the padding."""
    row_tiles, k_tiles = ceil_to(rows, 128) // 128, ceil_to(k, 4) // 4
    tiles = flat.view(torch.uint8).reshape(row_tiles, k_tiles, 32, 4, 4).permute(0, 3, 2, 1, 4)
    padded = tiles.reshape(row_tiles * 128, k_tiles * 4)
    return padded[:rows, :k].contiguous().view(flat.dtype)


def expand_rows(scale: torch.Tensor, rows: int) -> torch.Tensor:
    """Scales of two-dimensional blocks repeated so that each of ``rows`` rows has its own: (r, k) to (rows, k)."""
    if scale.shape[0] == rows:
        return scale
    # repeat_interleave has no kernel for one-byte floats everywhere; bytes always work.
    raw = scale.view(torch.uint8).repeat_interleave(rows // scale.shape[0], dim=0)
    return raw.view(scale.dtype)
