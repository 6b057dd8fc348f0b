"""Tensors whose elements do not lie in storage in the order of their indices: copies that keep strides and offset."""

from __future__ import annotations

import torch

from harness import torch_compat


def copied(tensor: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """``tensor`` times ``factor`` in storage of its own, with the same strides and storage offset; a view if it is one.

    What lies before and between its elements comes along. Tensors without strides (sparse ones, subclasses) are cloned.
    No gradient flows.
    """
    example, tensor = tensor, tensor.detach()
    if not _has_strides(tensor):
        return tensor.clone() if factor == 1.0 else tensor * factor
    storage = tensor.as_strided((_end_of(tensor),), (1,), 0)
    storage = storage.clone() if factor == 1.0 else storage * factor
    return _in(storage, example)


def laid_out_like(values: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """``values`` in storage of their own, with strides and storage offset of ``example``, which has their shape; a view
    if it is one.

    Along a dimension that ``example`` expands (stride 0) all elements are the first one of ``values``. What lies before
    and between the elements is NaN in floating point, so that whoever reads it shows.

    Raises:
        ValueError: another shape, or an example in which elements share memory other than by expansion.
    """
    if values.shape != example.shape:
        raise ValueError(f"values of shape {tuple(values.shape)} can't be laid out as {tuple(example.shape)}")
    if not _has_strides(example):
        return values.clone()
    if _overlaps(example):
        shape, strides = tuple(example.shape), tuple(example.stride())
        raise ValueError(f"elements of a tensor of shape {shape} with strides {strides} share memory")
    gaps = float("nan") if values.is_floating_point() else 0
    storage = torch.full((_end_of(example),), gaps, dtype=values.dtype, device=values.device)
    for dimension, stride in enumerate(example.stride()):
        if stride == 0 and values.shape[dimension] > 1:
            values = values.narrow(dimension, 0, 1)
    storage.as_strided(values.shape, example.stride(), example.storage_offset()).copy_(values)
    return _in(storage, example)


def _in(storage: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """``storage`` seen as ``example`` sees its own. What has a base is guarded on by Dynamo, base and all: a copy of a
    tensor without one must not have one either, or its next batch recompiles."""
    view = storage.as_strided(example.shape, example.stride(), example.storage_offset())
    return view if torch_compat.is_view(example) else view.detach()


def _has_strides(tensor: torch.Tensor) -> bool:
    plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__ or torch_compat.is_fake(tensor)
    return plain and tensor.layout is torch.strided


def _end_of(tensor: torch.Tensor) -> int:
    """One more than the position in storage of the tensor's last element; its offset where it has none."""
    if tensor.numel() == 0:
        return int(tensor.storage_offset())
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset()) + reach + 1


def _overlaps(tensor: torch.Tensor) -> bool:
    """True when two elements may have one address, expanded dimensions left out: sorted by stride, each dimension must
    step over all that lies below it."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride > 0:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False
