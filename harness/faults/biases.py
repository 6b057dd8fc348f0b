"""What the faults of biases share: FP8 layers add theirs in another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from harness.faults.patching import patched
from harness.providers.protocol import Provider

if TYPE_CHECKING:
    import torch

    from harness.fp8 import ToyLinear


def bias_fault(
    add: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Provider], AbstractContextManager[Provider]]:
    """An ``apply`` for a fault that returns ``add(y, bias)`` from each FP8 layer with a bias: ``y`` (..., N) is the
    product, ``bias`` (N) the parameter, both of one dtype."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8 import ToyLinear

        def changed(self: ToyLinear, y: torch.Tensor) -> torch.Tensor:
            return y if self.bias is None else add(y, self.bias.to(y.dtype))

        with patched(ToyLinear, "_add_bias", changed):
            yield provider

    return apply
