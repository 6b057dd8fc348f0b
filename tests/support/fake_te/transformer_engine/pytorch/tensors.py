"""Quantised tensors and what makes them. E4M3 saturates at 448, E5M2 at 57344."""

import enum
from dataclasses import dataclass
from typing import Any

import torch


class DType(enum.IntEnum):
    kFloat8E4M3 = 7
    kFloat8E5M2 = 8


TYPES = {DType.kFloat8E4M3: (torch.float8_e4m3fn, 448.0), DType.kFloat8E5M2: (torch.float8_e5m2, 57344.0)}


@dataclass
class Float8TensorStorage:
    _data: torch.Tensor
    _transpose: torch.Tensor | None
    _scale_inv: torch.Tensor
    _fp8_dtype: DType

    def values(self, usage: str) -> torch.Tensor:
        data = self._data if usage == "rowwise" else self._transpose
        assert data is not None, f"no {usage} data"
        return data.view(TYPES[self._fp8_dtype][0]).double() * self._scale_inv.double()


@dataclass
class Float8BlockwiseQTensorStorage:
    _rowwise_data: torch.Tensor
    _rowwise_scale_inv: torch.Tensor
    _columnwise_data: torch.Tensor
    _columnwise_scale_inv: torch.Tensor
    _is_2D_scaled: bool
    _fp8_dtype: DType

    def values(self, usage: str) -> torch.Tensor:
        data, scale = getattr(self, f"_{usage}_data"), getattr(self, f"_{usage}_scale_inv").double()
        rows, reduced = data.shape
        if self._is_2D_scaled:
            scale = scale[:, : reduced // 128].repeat_interleave(128, 0).repeat_interleave(128, 1)
        else:
            scale = scale[:, :rows].t().repeat_interleave(128, 1)
        return data.view(TYPES[self._fp8_dtype][0]).double() * scale


def _encode_scale(amax: torch.Tensor, top: float, power_2: bool, epsilon: float) -> torch.Tensor:
    scale = torch.full_like(amax, top) / amax.clamp_min(epsilon)
    scale = torch.where((amax == 0) | ~torch.isfinite(amax), torch.ones_like(scale), scale)
    scale = scale.clamp_max(torch.finfo(torch.float32).max)
    return torch.exp2(torch.floor(torch.log2(scale.double()))).float() if power_2 else scale


def _encode(x: torch.Tensor, scale: torch.Tensor, dtype: DType) -> torch.Tensor:
    torch_type, top = TYPES[dtype]
    return (x.float() * scale).clamp(-top, top).to(torch_type).view(torch.uint8)


class Quantizer:
    internal = False

    def set_usage(self, *, rowwise: bool, columnwise: bool) -> None:
        self.usage = (rowwise, columnwise)


class PerTensorQuantizer(Quantizer):
    force_pow_2_scales = False
    amax_epsilon = 0.0

    def __init__(self, dtype: DType, scale: torch.Tensor | None = None, history: torch.Tensor | None = None) -> None:
        self.dtype, self.scale, self.history = dtype, scale, history

    def __call__(self, x: torch.Tensor) -> Float8TensorStorage:
        rowwise, columnwise = self.usage
        if not rowwise:
            raise NotImplementedError("columnwise-only per-tensor quantization")
        amax = x.float().abs().amax()
        scale = self.scale
        if scale is None:
            scale = _encode_scale(amax, TYPES[self.dtype][1], self.force_pow_2_scales, self.amax_epsilon)
        if self.history is not None:
            self.history[0] = torch.maximum(self.history[0], amax)
        codes = _encode(x, scale, self.dtype)
        inverse = (1 / scale).reshape(1).clone()
        return Float8TensorStorage(codes, codes.t().contiguous() if columnwise else None, inverse, self.dtype)


class BlockQuantizer(Quantizer):
    def __init__(self, dtype: DType, parameters: Any, dimensions: int) -> None:
        self.dtype, self.parameters, self.dimensions = dtype, parameters, dimensions

    def __call__(self, x: torch.Tensor) -> Float8BlockwiseQTensorStorage:
        halves = (*self._half(x), *self._half(x.t().contiguous()))
        return Float8BlockwiseQTensorStorage(*halves, self.dimensions == 2, self.dtype)

    def _half(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        height = 128 if self.dimensions == 2 else 1
        blocks = x.float().reshape(x.shape[0] // height, height, x.shape[1] // 128, 128)
        amax, top = blocks.abs().amax((1, 3)), TYPES[self.dtype][1]
        scale = _encode_scale(amax, top, self.parameters.power_2_scale, self.parameters.amax_epsilon)
        codes = _encode(blocks, scale[:, None, :, None], self.dtype).reshape(x.shape)
        inverse = 1 / scale if self.dimensions == 2 else (1 / scale).t()
        return codes, torch.nn.functional.pad(inverse, (0, -inverse.shape[1] % 4)).contiguous()
