"""Recording of FP8 products as they ran: what the kernel was given and what it returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@contextmanager
def listening(receiver: Callable[[Product], None]) -> Iterator[None]:
    """Give every product that runs inside to ``receiver``, from eager and from compiled code alike."""
    _RECEIVERS.append(receiver)
    try:
        yield
    finally:
        _RECEIVERS.remove(receiver)


def active() -> bool:
    """True while somebody listens."""
    return bool(_RECEIVERS)


def emit(product: Product) -> None:
    """Called by the operators after each product."""
    for receiver in _RECEIVERS:
        receiver(product)
