"""Recording of FP8 products as they ran: what the kernel was given and what it returned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from harness.fp8.quantizer import Quantized


@dataclass(frozen=True)
class Product:
    """One product: ``product`` is fprop, dgrad or wgrad, ``phase`` forward, backward or recompute; ``key`` the recipe's
    key that the operator was given; ``weight_ptr`` the address of the layer's weight."""

    key: str
    product: str
    phase: str
    a: Quantized
    b: Quantized
    output: torch.Tensor
    weight_ptr: int


# Receivers of products, innermost last; normally empty. Process-global: backward may run on another thread.
_RECEIVERS: list[Callable[[Product], None]] = []


# What was quantised into the bytes that a weight cache keeps, by a digest of those bytes, while somebody listens.
_KEPT: dict[bytes, torch.Tensor] = {}


@contextmanager
def listening(receiver: Callable[[Product], None]) -> Iterator[None]:
    """Give every product that runs inside to ``receiver``, from eager and from compiled code alike."""
    _RECEIVERS.append(receiver)
    try:
        yield
    finally:
        _RECEIVERS.remove(receiver)
        if not _RECEIVERS:
            _KEPT.clear()


def active() -> bool:
    """True while somebody listens."""
    return bool(_RECEIVERS)


def emit(product: Product) -> None:
    """Called by the operators after each product."""
    for receiver in _RECEIVERS:
        receiver(product)


def keep(kept: Sequence[torch.Tensor], weight: torch.Tensor, skip: torch.Tensor | None) -> None:
    """Note that ``weight`` was quantised into the tensors ``kept``, unless ``skip`` holds 1. Nothing is copied while
    nobody listens."""
    if _can_look() and (skip is None or not bool(skip)):
        _KEPT[_digest(kept)] = weight.detach().clone()


def source_of(kept: Sequence[torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
    """What was quantised into ``kept``; ``weight``, the layer's own, where nobody listened when that was done."""
    return _KEPT.get(_digest(kept), weight) if _can_look() else weight


def _can_look() -> bool:
    """Whether somebody listens, and the host may read tensors: a graph capture would end."""
    return active() and not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def _digest(kept: Sequence[torch.Tensor]) -> bytes:
    """By value: compiled code hands operators copies."""
    digest = hashlib.sha256()
    for tensor in kept:
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.digest()
