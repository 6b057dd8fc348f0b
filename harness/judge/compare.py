"""Comparisons that NaN can't pass, and words for where they failed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from harness.types import Finding

SHOWN = 3  # findings per check; the rest is a count


@dataclass(frozen=True)
class Worst:
    """The outcome of ``value <= bound``, elementwise. ``ratio``: the largest value / bound; NaN counts as inf."""

    ratio: float
    index: tuple[int, ...]
    value: float
    bound: float
    outside: int  # elements that are not within their bound
    count: int

    @property
    def ok(self) -> bool:
        return self.outside == 0

    def __str__(self) -> str:
        place = f"{self.value:.3g} at {list(self.index)}"
        return f"{place} ({self.outside} of {self.count} outside, by up to {self.ratio:.3g} times)"


def within(value: torch.Tensor, bound: torch.Tensor) -> Worst:
    """Compare tensors of one shape, ``value`` not negative. What is not provably within is outside: NaN, and inf."""
    count = value.numel()
    if count == 0:
        return Worst(0.0, (), 0.0, 0.0, 0, 0)
    flat = int((value / bound).argmax().item())  # NaN counts as the largest
    top = _worst(value, bound, flat, 0)
    if top.ratio <= 1 and math.isfinite(bound.amax().item()):
        return top
    inside = value <= bound
    if not bool(torch.isfinite(bound).all()):
        inside = inside & torch.isfinite(bound)
    outside = count - int(inside.sum().item())
    ratios = torch.where(value == 0, 0.0, value / bound)
    ratios = torch.where(inside | (ratios > 1), ratios, math.inf)
    flat = int(ratios.argmax().item())
    return replace(_worst(value, bound, flat, outside), ratio=float(ratios.reshape(-1)[flat].item()))


def _worst(value: torch.Tensor, bound: torch.Tensor, flat: int, outside: int) -> Worst:
    v, b = float(value.reshape(-1)[flat].item()), float(bound.reshape(-1)[flat].item())
    ratio = v / b if b != 0 else math.nan  # zero over zero is looked at again
    return Worst(ratio, unravel(flat, tuple(value.shape)), v, b, outside, value.numel())


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Index of element number ``flat`` of a contiguous tensor of ``shape``."""
    index: list[int] = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))


def first_index(mask: torch.Tensor) -> tuple[int, ...]:
    """Index of the first true element; the mask must have one."""
    return unravel(int(mask.reshape(-1).to(torch.uint8).argmax().item()), tuple(mask.shape))


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bit_difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Mask of elements whose bits differ (NaN equals NaN only with the same bits; -0 and 0 differ). Equal dtypes."""
    bits = _BITS[a.element_size()]
    return a.contiguous().view(bits) != b.contiguous().view(bits)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True when shape, dtype and all bits are equal."""
    return a.shape == b.shape and a.dtype == b.dtype and not bool(bit_difference(a, b).any())


def same_values(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Mask of equal elements after conversion to float64; NaN equals NaN."""
    x, y = a.to(torch.float64), b.to(torch.float64)
    return (x == y) | (torch.isnan(x) & torch.isnan(y))


def norm(x: torch.Tensor) -> float:
    """Euclidean norm in float64."""
    return float(torch.linalg.vector_norm(x.to(torch.float64)).item())


def distance(seen: torch.Tensor, wanted: torch.Tensor) -> float:
    """Euclidean norm of the difference over that of ``wanted``; inf where that is zero, or the shapes differ."""
    size = norm(wanted) if seen.shape == wanted.shape else 0.0
    return norm(seen.double() - wanted.double()) / size if size else math.inf


def sqnr(reference: torch.Tensor, value: torch.Tensor) -> float:
    """Signal to quantisation noise ratio in dB of ``value`` against ``reference``: inf where they are equal, -inf where
    there is no signal or the noise is infinite, NaN where it is NaN."""
    signal, noise = norm(reference), norm(value.to(torch.float64) - reference)
    if noise == 0:
        return math.inf
    ratio = signal / noise
    return -math.inf if ratio == 0 else 20 * math.log10(ratio)


def shorten(findings: Sequence[Finding]) -> list[Finding]:
    """The first findings of one check; the last one kept says how many more there were."""
    if len(findings) <= SHOWN:
        return list(findings)
    kept = list(findings[:SHOWN])
    kept[-1] = replace(kept[-1], got=f"{kept[-1].got} (and {len(findings) - SHOWN} more)")
    return kept
