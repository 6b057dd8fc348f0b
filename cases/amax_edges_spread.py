"""How far one element that is not finite gets from a gradient or a weight, and that a gradient of zero gives zeros.

Of a stack of two layers, all of it is about the second one: what is bad in its operands reaches whole rows of the
first one's, whose own results then say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.probing import Probing

BAD = {"infinite": float("inf"), "nan": float("nan")}
# Columns of y, rows of a weight, that may share a scale with the bad one; elsewhere each row of a weight has its own,
# or the whole tensor has one, which an amax that is not finite leaves at 1. A gradient's blocks are parts of one row
# in every recipe, in either of its orientations.
WEIGHT_ROWS = {"float8_block_scaling": 128, "nvfp4_block_scaling": 16}


@dataclass(frozen=True)
class Stack:
    """Two layers without bias, run as ``name`` says (eager, compiled), on an ordinary batch that wants a gradient."""

    name: str
    run: Callable[[torch.Tensor], torch.Tensor]
    x: torch.Tensor
    weights: Sequence[torch.Tensor]


def bad_lines(tensor: torch.Tensor, dim: int) -> list[int]:
    """Indices along ``dim`` of a matrix at which an element is not finite."""
    return sorted(set(torch.nonzero(~torch.isfinite(tensor)).select(1, dim).tolist()))


def beyond(lines: Sequence[int], allowed: Sequence[int]) -> list[int]:
    """Those of ``lines`` that aren't ``allowed``."""
    return sorted(set(lines) - set(allowed))


def state_lines(
    probing: Probing, dim: int, of: str, tensor: torch.Tensor, line: int, *, nan: bool, block: int = 1
) -> None:
    """Rows (``dim`` 0) or columns (1) of the tensor are finite outside the block of ``block`` in which ``line`` lies;
    with ``nan``, all of that line is NaN. ``of``: what the tensor is."""
    kind, first = ("row", "column")[dim], line // block * block
    allowed = range(first, first + block)
    where = f"{line}" if block == 1 else f"{allowed[0]} to {allowed[-1]}"
    bad = beyond(bad_lines(tensor, dim), allowed)
    probing.fact(f"{kind}s of {of} that are not finite beyond {where}", [], bad)
    if nan:
        whole = tensor.select(dim, line)
        probing.fact(f"elements of {kind} {line} of {of} that are NaN", whole.numel(), int(whole.isnan().sum()))


def bad_gradient(probing: Probing, variant: str, stack: Stack) -> list[torch.Tensor]:
    """One element of the result's gradient is bad: states the rows of the gradients of input and second weight, and
    returns both."""
    y = stack.run(stack.x)
    m, n = _inside(y)
    gradient = torch.ones_like(y)
    gradient[m, n] = BAD[variant]
    of_x, of_weight = torch.autograd.grad(y, [stack.x, stack.weights[1]], gradient)
    after, nan = f"after a gradient with {variant}, {stack.name},", variant == "nan"
    state_lines(probing, 0, f"the input's gradient {after}", of_x, m, nan=nan)
    state_lines(probing, 0, f"the second weight's gradient {after}", of_weight, n, nan=nan)
    return [of_x, of_weight]


def nan_weight(probing: Probing, stack: Stack) -> list[torch.Tensor]:
    """One element of the second weight is NaN, for as long as this runs: states the columns of the result, and
    returns it."""
    weight = stack.weights[1]
    n, k = _inside(weight)
    before = weight.detach()[n, k].clone()
    try:
        _write(weight, n, k, BAD["nan"])
        y = stack.run(stack.x).detach()
    finally:
        _write(weight, n, k, before)
    block = WEIGHT_ROWS.get(probing.axes.recipe.name, 1)
    state_lines(probing, 1, f"the result after a weight with nan, {stack.name},", y, n, nan=True, block=block)
    return [y]


def zero_gradient(probing: Probing, stack: Stack) -> list[torch.Tensor]:
    """The result's gradient is zero everywhere, as of a batch that is masked out: states that so are the others, and
    returns them."""
    y = stack.run(stack.x)
    gradients = torch.autograd.grad(y, [stack.x, *stack.weights], torch.zeros_like(y))
    for what, gradient in zip(("input", "first weight", "second weight"), gradients, strict=True):
        largest = gradient.abs().max().item()
        probing.fact(f"largest gradient of the {what} where the result's is zero, {stack.name}", 0.0, largest)
    return list(gradients)


def _inside(tensor: torch.Tensor) -> tuple[int, int]:
    """An element away from every edge, in a row and a column of different numbers where the sizes differ."""
    return tensor.shape[0] // 2 + 3, tensor.shape[1] // 2 + 5


def _write(weight: torch.Tensor, n: int, k: int, value: float | torch.Tensor) -> None:
    with torch.no_grad():
        weight[n, k] = value
