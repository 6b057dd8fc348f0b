"""An input of another dtype than the layer's is cast in silence, also where no ``torch.autocast`` asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider

if TYPE_CHECKING:
    import torch


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    import torch

    from harness.fp8 import shapes

    wanted = shapes.in_compute_dtype

    def cast(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return wanted(x if torch.is_autocast_enabled(x.device.type) else x.to(weight.dtype), weight)

    with patched(shapes, "in_compute_dtype", cast):
        yield provider


FAULT = Fault(
    name="other_dtype_cast",
    breaks="an input of another dtype than the weight's is cast without a word",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "microbatch", "variant": "flag"},
)
