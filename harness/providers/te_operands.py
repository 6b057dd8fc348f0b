"""Transformer Engine's quantised tensors as operands: codes and decode scales in reduction-last orientation.

How each class lays out its bytes was read in the sources of 2.20.2 (``pytorch/tensor/storage``); the table is in
docs/transformer_engine.md. ``rowwise`` data is as the tensor is, ``columnwise`` data serves products that reduce over
its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from harness.providers.protocol import Operand

BLOCK = 128
MX_BLOCK = 32
NV_BLOCK = 16
_E8M0_BIAS = 127
_FP4_MAX = 6.0
_BLOCKWISE = "Float8BlockwiseQTensorStorage"


@dataclass(frozen=True)
class Source:
    """The high-precision tensor behind an operand, reduction last, and its role."""

    role: str
    tensor: torch.Tensor


@dataclass(frozen=True)
class _Read:
    """uint8 codes and float32 decode scales, one per block."""

    codes: torch.Tensor
    scale: torch.Tensor
    block: tuple[int, int]
    global_scale: torch.Tensor | None = None


def read(tensor: Any, usage: str, source: Source) -> Operand | None:
    """The operand that a GEMM reads from ``tensor``; None for a tensor that isn't quantised.

    Args:
        usage: ``rowwise`` or ``columnwise``, what the GEMM's layout asks for.

    Raises:
        RuntimeError: a class of quantised tensors, or a layout of scales, that isn't known here.
    """
    names = _classes(tensor)
    reader = next((reader for name, reader in _READERS.items() if name in names), None)
    if reader is None:
        if isinstance(tensor, torch.Tensor) and type(tensor).__module__.partition(".")[0] == "torch":
            return None
        raise RuntimeError(f"a GEMM was given a {type(tensor).__name__}: its layout is not known to the tap")
    if getattr(tensor, "_with_gemm_swizzled_scales", False):
        raise RuntimeError(f"scales of a {type(tensor).__name__} are in the GEMM's own order, unknown to the tap")
    found = reader(tensor, usage, source)
    return Operand(
        role=source.role,
        format=_format(tensor),
        block=found.block,
        source=source.tensor.detach().clone(),
        codes=found.codes.clone(),
        scale=found.scale.to(torch.float32).clone(),
        global_scale=None if found.global_scale is None else found.global_scale.clone(),
    )


def blockwise(tensor: Any) -> bool:
    """True for block scaling, for which ``general_gemm`` turns precise accumulation on whatever it is asked for."""
    return _BLOCKWISE in _classes(tensor)


def _classes(tensor: Any) -> set[str]:
    return {cls.__name__ for cls in type(tensor).__mro__}


def _format(tensor: Any) -> str:
    dtype = getattr(tensor, "_fp8_dtype", None)
    if dtype is None:
        dtype = getattr(tensor, "_fp4_dtype", None)
    name = str(getattr(dtype, "name", dtype))  # kFloat8E4M3: an enumeration in Python, in older versions in C++
    for known in ("E4M3", "E5M2", "E2M1"):
        if name.endswith(known):
            return known.lower()
    raise RuntimeError(f"unknown element type {name} of a {type(tensor).__name__}")


def _flat(data: torch.Tensor, usage: str) -> torch.Tensor:
    """(rows, reduced): leading dimensions are rows, or, in data stored transposed, the reduction."""
    flat = data.reshape(-1, data.shape[-1]) if usage == "rowwise" else data.reshape(data.shape[0], -1)
    return flat.view(torch.uint8)


def _per_tensor(tensor: Any, usage: str, source: Source) -> _Read:
    """One scale. Hopper's GEMM wants a transposed copy; newer ones read the same bytes both ways and there is none."""
    if usage == "columnwise" and tensor._transpose is None:
        codes = _flat(tensor._data, "rowwise").t().contiguous()
    else:
        codes = _flat(tensor._data if usage == "rowwise" else tensor._transpose, usage)
    return _Read(codes, tensor._scale_inv.reshape(1, 1), (codes.shape[0], codes.shape[1]))


def _blocks(tensor: Any, usage: str, source: Source) -> _Read:
    """128x128 or 1x128. Scales are padded to 4 along their last dimension; those of 1x128 are stored transposed."""
    codes = _flat(tensor._rowwise_data if usage == "rowwise" else tensor._columnwise_data, usage)
    scale = tensor._rowwise_scale_inv if usage == "rowwise" else tensor._columnwise_scale_inv
    rows, reduced = codes.shape
    if tensor._is_2D_scaled:
        wanted = (math.ceil(rows / BLOCK), math.ceil(reduced / BLOCK))
        return _Read(codes, _cut(scale, wanted), (BLOCK, BLOCK))
    wanted = (math.ceil(reduced / BLOCK), rows)
    return _Read(codes, _cut(scale, wanted).t().contiguous(), (1, BLOCK))


def _mx(tensor: Any, usage: str, source: Source) -> _Read:
    """1x32 with E8M0 scales, padded to 128 by 4. Columnwise data keeps the tensor's own order, blocks run down."""
    if usage == "rowwise":
        codes = _flat(tensor._rowwise_data, "rowwise")
        exponents = _cut(tensor._rowwise_scale_inv, (codes.shape[0], math.ceil(codes.shape[1] / MX_BLOCK)))
    else:
        codes = _flat(tensor._columnwise_data, "rowwise")
        exponents = _cut(tensor._columnwise_scale_inv, (math.ceil(codes.shape[0] / MX_BLOCK), codes.shape[1]))
        codes, exponents = codes.t().contiguous(), exponents.t().contiguous()
    scale = torch.ldexp(torch.ones(()), exponents.view(torch.uint8).to(torch.int32) - _E8M0_BIAS)
    return _Read(codes, scale, (1, MX_BLOCK))


def _nv(tensor: Any, usage: str, source: Source) -> _Read:
    """1x16 with E4M3 scales, two E2M1 codes a byte, low half first, and one amax for the second level.

    Weights quantised in 16x16 blocks carry each scale sixteen times; they are reported as the blocks that they are.
    """
    rowwise = usage == "rowwise"
    packed = _flat(tensor._rowwise_data if rowwise else tensor._columnwise_data, usage)
    codes = torch.stack((packed & 0xF, packed >> 4), dim=-1).reshape(packed.shape[0], -1)
    scale = tensor._rowwise_scale_inv if rowwise else tensor._columnwise_scale_inv
    scale = _cut(scale, (codes.shape[0], math.ceil(codes.shape[1] / NV_BLOCK)))
    scale = scale.view(torch.uint8).view(torch.float8_e4m3fn).to(torch.float32)
    block = (1, NV_BLOCK)
    if source.role == "weight" and bool(getattr(tensor._quantizer, "with_2d_quantization", False)):
        groups = scale.reshape(-1, NV_BLOCK, scale.shape[1])
        if not torch.equal(groups, groups[:, :1].expand_as(groups)):
            raise RuntimeError("the scales of a weight quantised in 16x16 blocks differ within a block")
        scale, block = groups[:, 0].contiguous(), (NV_BLOCK, NV_BLOCK)
    amax = (tensor._amax_rowwise if rowwise else tensor._amax_columnwise).reshape(1).to(torch.float32)
    top = _FP4_MAX * float(getattr(tensor, "_nvfp4_e4m3_max", 448))
    encode = torch.clamp(torch.full_like(amax, top) / amax, max=torch.finfo(torch.float32).max)
    encode = torch.where((amax == 0) | ~torch.isfinite(amax), torch.ones_like(amax), encode)
    return _Read(codes, scale, block, torch.ones_like(encode) / encode)


def _cut(scale: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """The scales without their padding.

    Raises:
        RuntimeError: fewer scales than blocks.
    """
    if scale.dim() != 2 or scale.shape[0] < shape[0] or scale.shape[1] < shape[1]:
        raise RuntimeError(f"scales of shape {tuple(scale.shape)} where {shape} blocks were expected")
    return scale[: shape[0], : shape[1]].contiguous()


_READERS: Mapping[str, Callable[[Any, str, Source], _Read]] = {
    "Float8TensorStorage": _per_tensor,
    _BLOCKWISE: _blocks,
    "MXFP8TensorStorage": _mx,
    "NVFP4TensorStorage": _nv,
}
