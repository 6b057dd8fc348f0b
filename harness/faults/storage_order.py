"""What the faults of a layout share: an operand is read as its storage lies, not as its strides say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.faults.patching import patched

if TYPE_CHECKING:
    import torch

    from harness.providers.protocol import Provider

Read = Callable[["torch.Tensor"], "torch.Tensor"]


def layout_fault(role: str, read: Read) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault that reads every operand of ``role`` by ``read``."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8 import ops

        in_order = ops.in_order

        def misread(operand: torch.Tensor, of: str) -> torch.Tensor:
            return read(operand) if of == role else in_order(operand, of)

        with patched(ops, "in_order", misread):
            yield provider

    return apply


def without_strides(operand: torch.Tensor) -> torch.Tensor:
    """One element after the other from the first one's address on; the last one over and over where the storage ends,
    since what a kernel would find behind it is anyone's guess."""
    import torch

    storage = operand.as_strided((_length(operand),), (1,), operand.storage_offset())
    positions = torch.arange(operand.numel(), device=operand.device).clamp(max=storage.numel() - 1)
    return storage[positions].reshape(operand.shape)


def without_offset(operand: torch.Tensor) -> torch.Tensor:
    """By its strides, but from the start of the storage."""
    return operand.as_strided(operand.shape, operand.stride(), 0).contiguous()


def _length(operand: torch.Tensor) -> int:
    """Elements of the storage from the operand's first one on."""
    return operand.untyped_storage().nbytes() // operand.element_size() - int(operand.storage_offset())
