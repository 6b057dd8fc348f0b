"""Rounding noise of a program's high-precision operations, measured on the oracle itself.

The oracle runs what lies between the linears (norms, activations, attention) in float64, the judged program in its own
dtype, where a softmax or the backward of a norm may amplify roundings far beyond what a few elementwise operations do.
How far depends on program and data, so it is measured: the unquantised program runs twice, its operations in float64
and in the program's dtype, both times on the oracle's exact linears. What differs is rounding noise of the size that
the judged run has too. It is measured only where a run isn't explained without it, and a chain of linears has none:
such a program is always held to the tight bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from harness.judge.oracle_provider import OracleProvider
from harness.judge.oracle_steps import At, whole_step
from harness.observe.types import Batch
from harness.program import Program

Tensors = Mapping[str, torch.Tensor]
Make = Callable[[OracleProvider], Program]
FIRST = At(0)


@dataclass(frozen=True)
class Noise:
    """Typical size of rounding noise in one step, elementwise; what has none is absent.

    ``operands``: by (site, role) for the (M, K) inputs and (M, N) output gradients of linears. ``tensors``: output and
    gradients by name.
    """

    operands: Mapping[tuple[int, str], torch.Tensor] = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        return not self.operands and not self.tensors


def measure_noise(make: Make, batch: Batch, wanted: frozenset[str], dtype: torch.dtype, at: At = FIRST) -> Noise:
    """Noise of one step; silent where nothing but linears (and operations that don't round) makes up the program.

    Args:
        make: builds the program, parameters loaded, on the provider that it is given.
        wanted: inputs that need a gradient, as in :func:`harness.judge.oracle_steps.forward`.
        at: the step, for programs whose steps differ.

    Raises:
        RuntimeError: the program's operations can't run in ``dtype`` (they mix it with float64 constants).
    """
    exact, own = _unquantised(make, batch, wanted, at, dtype, torch.float64)
    rounded, other = _unquantised(make, batch, wanted, at, dtype, dtype)
    operands = {}
    for a, b in zip(exact.run.sites, rounded.run.sites, strict=True):
        for role, one, two in (("input", a.x, b.x), ("grad_output", a.grad_output, b.grad_output)):
            if one is not None and two is not None and not torch.equal(one, two):
                operands[a.index, role] = _size(one - two)
    tensors = {
        name: _size(tensor - other[name])
        for name, tensor in own.items()
        if name in other and not torch.equal(tensor, other[name])
    }
    return Noise(operands, tensors)


def _size(difference: torch.Tensor) -> torch.Tensor:
    """Rms of the difference along its row or its column, whichever is larger: noise may sit in few of either."""
    flat = difference.reshape(-1, difference.shape[-1]) if difference.dim() > 1 else difference.reshape(1, -1)
    square = flat * flat
    size = square.mean(dim=1, keepdim=True).sqrt().expand(flat.shape)
    if flat.shape[0] > 1:
        size = torch.maximum(size, square.mean(dim=0, keepdim=True).sqrt())
    return size.reshape(difference.shape)


def _unquantised(
    make: Make, batch: Batch, wanted: frozenset[str], at: At, model_dtype: torch.dtype, dtype: torch.dtype
) -> tuple[OracleProvider, Tensors]:
    provider = OracleProvider(model_dtype, mode="exact")
    return provider, whole_step(provider, make(provider), batch, wanted, at, dtype)
