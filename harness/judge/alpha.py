"""Did FP8 happen? The projection of a result's deviation on the oracle's own quantisation error.

Let Q be the oracle's result and D the part of Q that quantisation caused (Q minus the same program without that
quantisation). For a result y

    y - Q = sum_i c_i D_i + residual   (least squares),    alpha_i = 1 + c_i

A result computed from the same FP8 codes differs from Q by rounding only: alpha = 1. One that was computed in high
precision lacks D: alpha = 0. With a single D this is alpha = <y - U, D> / |D|^2, U = Q - D the unquantised product.
D_i is the share of one FP8 product, so that one layer of three that is silently in bfloat16 has alpha 0 for itself.

Components are taken along the *quantised* program: the error that product i made there, carried to the result with all
other errors held fixed. "Quantise only product i" would not do: a layer that sees an input without the earlier layers'
noise rounds other elements up and down, and its errors are as good as independent of those in the real run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.judge.bounds import Accumulator
from harness.judge.compare import norm
from harness.judge.formats import Precision

# Halfway between "FP8 happened" (1) and "it did not" (0): a wider interval decides nothing, so none is ever used.
DECISIVE = 0.5

# Standard deviations allowed for the projection of rounding noise; P(|N(0,1)| > 6) = 2e-9.
SIGMAS = 6.0

# Two roundings to the program's dtype can fall the other way (bias and one more operation). Each difference is at most
# one spacing, 2 u |y|, and its mean square over all positions in a spacing is 1/6 of that of two independent roundings.
ROUNDINGS = 2.0


@dataclass(frozen=True)
class Component:
    """The share of one FP8 product, or of a whole program ("all"), in a result: float64, the result's shape."""

    label: str
    share: torch.Tensor


@dataclass(frozen=True)
class Shares:
    """What quantisation caused in one tensor of the last step: as a whole, and by product where it is direct.

    ``direct``: for the output each forward product, for an input gradient each dgrad, for a weight its own wgrad (one
    component per use) and, as one component that is not judged, all the rest.
    """

    whole: Component
    direct: tuple[Component, ...]
    rest: Component | None = None


@dataclass(frozen=True)
class Alpha:
    """Projection on one component. ``bound`` on |alpha - 1|; not ``decisive``: noise leaves nothing to decide."""

    label: str
    alpha: float
    bound: float

    @property
    def decisive(self) -> bool:
        return self.bound < DECISIVE

    @property
    def ok(self) -> bool:
        """False for NaN."""
        return abs(self.alpha - 1.0) <= self.bound


def noise_rms(
    value: torch.Tensor, precision: Precision, accumulator: Accumulator, noise: torch.Tensor | None = None
) -> float:
    """Rms, as seen by a projection, of what separates two correct results of which one is ``value`` (the oracle's).

    Rounding differences are independent from element to element, and so is ``noise``, the size of further rounding
    noise where it was measured. Accumulation errors may be common to a row or column (a truncating accumulator biases a
    large sum), so only as many elements count as independent as the shorter side of the result has; their rms is taken
    as half of the accumulator's spread.
    """
    count = max(value.numel(), 1)
    independent = min(value.reshape(-1, value.shape[-1]).shape) if value.dim() else 1
    rms = norm(value) / math.sqrt(count)
    rounding = norm(rounding_rms(value, precision)) / math.sqrt(count)
    accumulation = accumulator.spread / 2 * rms * math.sqrt(count / max(independent, 1))
    measured = 0.0 if noise is None else norm(noise) / math.sqrt(count)
    return math.hypot(rounding, accumulation, measured)


def rounding_rms(value: torch.Tensor, precision: Precision) -> torch.Tensor:
    """The part of :func:`noise_rms` that rounding is, element by element: a large element is rounded by more.

    Below the smallest normal number numbers stand as far apart as above it.
    """
    size = value.abs().to(torch.float64).clamp_min(math.ldexp(1.0, precision.emin))
    return ROUNDINGS * precision.unit * math.sqrt(2.0 / 3.0) * torch.where(value == 0, 0.0, size)


def project(
    deviation: torch.Tensor,
    components: Sequence[Component],
    noise: float,
    rounding: torch.Tensor | None = None,
    common: torch.Tensor | None = None,
) -> list[Alpha]:
    """alpha of each component by least squares on all of them; components without any share are left out.

    The bound on |alpha_i - 1| is ``SIGMAS`` standard errors of the coefficient, sqrt((G^-1)_ii) * noise with
    G = <D_i, D_j> (the ordinary least-squares formula), and never above one half. A coefficient is a weighted sum of
    the deviation's elements; where its weights lie on elements whose ``rounding`` is larger than its rms, the variance
    grows by sum_k w_k^2 (rounding_k^2 - rms^2). On heavy-tailed data one element may hold a sixth of a share, and its
    one rounding is then most of the coefficient's error (measured: 0.9 of the bound without this). What may be wrong in
    all elements alike, ``common``, averages out nowhere: the bound grows by sum_k |w_k| common_k.

    Args:
        deviation: y - Q, float64. ``noise``: rms of what may separate two correct results, from :func:`noise_rms`.
        rounding: from :func:`rounding_rms`; None where noise is the same everywhere.
        common: elementwise; None where there is nothing of the kind.
    """
    present = [c for c in components if norm(c.share) > 0]
    if not present:
        return []
    shares = torch.stack([c.share.reshape(-1).to(torch.float64) for c in present])
    scales = torch.linalg.vector_norm(shares, dim=1)
    unit = shares / scales[:, None]
    gram = unit @ unit.t()
    inverse = torch.linalg.pinv(gram, hermitian=True) if len(present) > 1 else torch.ones_like(gram)
    coefficients = (inverse @ (unit @ deviation.reshape(-1))) / scales
    variances = noise**2 * inverse.diagonal().clamp_min(0)
    if rounding is not None:
        squares = rounding.reshape(-1) ** 2
        variances = variances + ((inverse @ unit) ** 2 @ (squares - squares.mean())).clamp_min(0)
    bounds = SIGMAS * variances.sqrt()
    if common is not None:
        bounds = bounds + (inverse @ unit).abs() @ common.reshape(-1)
    return [
        Alpha(c.label, 1.0 + float(coefficient), min(DECISIVE, float(bound)))
        for c, coefficient, bound in zip(present, coefficients, bounds / scales, strict=True)
    ]


def project_shares(
    deviation: torch.Tensor,
    shares: Shares,
    noise: float,
    rounding: torch.Tensor | None = None,
    common: torch.Tensor | None = None,
) -> list[Alpha]:
    """alpha of the whole first, then of each direct product; one only where the whole is one product."""
    if len(shares.direct) == 1 and shares.rest is None:
        return project(deviation, shares.direct, noise, rounding, common)
    together = [*shares.direct, *([shares.rest] if shares.rest is not None else [])]
    whole = project(deviation, [shares.whole], noise, rounding, common)
    parts = project(deviation, together, noise, rounding, common)
    return whole + [alpha for alpha in parts if shares.rest is None or alpha.label != shares.rest.label]
