"""How far the kernels of earlier products may have moved the tensor that a later product is given.

A layer's input or output gradient is often the result of another product, as it is or behind an activation. Where few
large terms of that product cancel, its kernel's bound is far above anything that the result's own size tells. It goes
through an activation f as what f makes of it: an input f(y) moves by f(y + d) - f(y), a gradient f'(y) u by the slope
times what u moves and by u times what the slope moves, which is all of it where u is large (heavy-tailed data on an
H200: 1.67 of the bound that the gradient's own size gives).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import gelu, mish, sigmoid, silu, softplus, tanh

from harness.judge.bounds import ADDED_UNITS, OWN_UNITS
from harness.judge.formats import Precision
from harness.judge.oracle_sites import Activation, Behind, ProductRun, Site

# Autograd's nodes of operations that take one tensor element by element; those of the second set keep every value. A
# parameter that moves the curve a little (gelu's approximation) doesn't matter to how far a bound goes.
ACTIVATIONS: Mapping[str, Activation] = {
    "GeluBackward0": gelu,
    "SiluBackward0": silu,
    "MishBackward0": mish,
    "SigmoidBackward0": sigmoid,
    "SoftplusBackward0": softplus,
    "TanhBackward0": tanh,
    "ReluBackward0": torch.relu,
}
KEPT = ("ToCopy", "View", "UnsafeView", "ReshapeAlias", "Alias", "Clone", "Squeeze", "Unsqueeze")
_KEPT = frozenset(f"{name}Backward0" for name in KEPT)

BoundOf = Callable[[ProductRun], torch.Tensor]  # the largest error of a product's kernel, (rows of A, rows of B)
Upstream = tuple[tuple[Activation, ...], torch.Tensor, torch.Tensor]  # activations, gradient behind them, its bound


def behind(x: torch.Tensor) -> Behind | None:
    """The site whose result ``x`` is, and the activations in between; None where anything else made ``x``.

    Read from the autograd graph, nothing of which is run: a checkpoint's saved tensors would be recomputed.
    """
    node: Any = x.grad_fn
    through: list[Activation] = []
    while node is not None and (node.name() in _KEPT or node.name() in ACTIVATIONS):
        through += [ACTIVATIONS[node.name()]] if node.name() in ACTIVATIONS else []
        node = next((following for following, _ in node.next_functions if following is not None), None)
    if node is None or node.name() != "_LinearBackward":
        return None
    return Behind(node.site, tuple(reversed(through)))


def forward_kernel(
    sites: Sequence[Site], x: torch.Tensor, source: Behind | None, bound_of: BoundOf, precision: Precision
) -> torch.Tensor | None:
    """How far a kernel may have moved the input ``x`` (M, K), the result of ``source``; None: nothing known."""
    if source is None:
        return None
    y = sites[source.site].y
    moved = _moved_result(sites[source.site], bound_of, precision)
    if moved is None or y.shape != x.shape:
        return None
    at = _through(source.through, y)
    most = torch.maximum(*((_through(source.through, y + d) - at).abs() for d in (moved, -moved)))
    return most + _roundings(x, precision)


def gradient_kernel(
    sites: Sequence[Site],
    index: int,
    g: torch.Tensor,
    ends: tuple[Behind, torch.Tensor] | None,
    bound_of: BoundOf,
    precision: Precision,
) -> torch.Tensor | None:
    """How far kernels may have moved the output gradient ``g`` (M, N) of site ``index``; None: nothing known.

    ``ends``: where the program's output comes from, and the gradient (M, N) that its backward begins with.
    """
    site = sites[index]
    upstream = list(_upstream(sites, index, ends, bound_of, precision))
    if not upstream or site.y.shape != g.shape:
        return None
    moved = _moved_result(site, bound_of, precision)
    total = _roundings(g, precision)
    for through, gradient, bound in upstream:
        slope = _slope(through, site.y)
        slopes = [] if moved is None else [_slope(through, site.y + d) for d in (moved, -moved)]
        steepest = slope.abs()
        for other in slopes:
            steepest = torch.maximum(steepest, other.abs())
        changes = [(other - slope).abs() for other in slopes]
        total = total + steepest * bound
        total = total + (torch.maximum(*changes) * gradient.abs() if changes else 0.0)
    return total


def _upstream(
    sites: Sequence[Site],
    index: int,
    ends: tuple[Behind, torch.Tensor] | None,
    bound_of: BoundOf,
    precision: Precision,
) -> Iterator[Upstream]:
    """Each gradient that flows into the result of site ``index`` through activations alone."""
    y = sites[index].y
    if ends is not None and ends[0].site == index and ends[1].numel() == y.numel():
        yield ends[0].through, ends[1].reshape(y.shape).to(y), torch.zeros_like(y)
    for site in sites:
        if site.behind is None or site.behind.site != index or site.dx is None or site.dx.shape != y.shape:
            continue
        bound = 2 * precision.unit * site.dx.abs()  # its rounding may fall the other way
        if "dgrad" in site.products:
            bound = bound + bound_of(site.products["dgrad"])
        yield site.behind.through, site.dx, bound


def _moved_result(site: Site, bound_of: BoundOf, precision: Precision) -> torch.Tensor | None:
    """How far a correct kernel's result, bias added, may be from the oracle's ``site.y``; None outside FP8 regions."""
    product = site.products.get("fprop")
    if product is None or product.quantised.shape != site.y.shape:
        return None
    moved = bound_of(product) + 2 * precision.unit * site.y.abs()
    return moved if site.bias is None else moved + ADDED_UNITS * precision.unit * site.bias.abs().to(moved)


def _through(through: Sequence[Activation], y: torch.Tensor) -> torch.Tensor:
    for activation in through:
        y = activation(y)
    return y


def _slope(through: Sequence[Activation], y: torch.Tensor) -> torch.Tensor:
    if not through:
        return torch.ones_like(y)
    with torch.enable_grad():
        at = y.detach().requires_grad_()
        (slope,) = torch.autograd.grad(_through(through, at).sum(), at)
    return slope


def _roundings(value: torch.Tensor, precision: Precision) -> torch.Tensor:
    """The same that harness.judge.bounds.admissible_difference grants a value for the roundings of its own size."""
    return OWN_UNITS * (precision.unit * value.abs() + 2 * precision.half_tiny)
