"""Test data: the three kinds of values a cell can be fed with, and the parameters of its model.

Everything is drawn on the CPU in float32, rounded once to the program's dtype and only then moved, so that one seed
gives the same bits on every device and the judge's float64 oracle starts from exactly the values the provider had.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence

import torch

from harness import torch_compat

# Student's t with 2 degrees of freedom has infinite variance; at 128 the largest element stands 6 to 7 octaves above
# the median. Four products of two such elements are 65536, which float16 doesn't have (a weight gradient over 128 rows
# was infinite in 2 of 3 seeds), so there it is less.
HEAVY_TAILED_LIMIT = 128.0
HEAVY_TAILED_LIMIT_FLOAT16 = 32.0

# Large enough that a lost bias is far outside the allowance of FP8 rounding (about 4 % of the output's rms).
BIAS_STD = 0.25


def _normal(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32)


def _positive(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return _normal(shape, generator).abs()


def _heavy_tailed(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    # t_2 = N / sqrt(chi2_2 / 2), and chi2_2 / 2 is a unit exponential.
    numerator = _normal(shape, generator)
    if torch_compat.is_fake(numerator):
        return numerator  # exponential_ has no fake implementation with a generator (torch 2.13), and a fake no values
    exponential = torch.empty(tuple(shape), dtype=torch.float32).exponential_(generator=generator)
    t2 = numerator / exponential.clamp_min(torch.finfo(torch.float32).tiny).sqrt()
    return t2


_DRAW: dict[str, Callable[[Sequence[int], torch.Generator], torch.Tensor]] = {
    "normal": _normal,
    "positive": _positive,
    "heavy_tailed": _heavy_tailed,
}


def draw(
    kind: str,
    shape: Sequence[int],
    generator: torch.Generator,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """One tensor of test data.

    ``normal``: standard normal. ``positive``: its absolute value (sums grow with K: shows accumulation faults).
    ``heavy_tailed``: Student's t with 2 degrees of freedom, clamped to ±128, in float16 to ±32 (few large elements
    decide a block's scale: shows scaling faults).

    Args:
        kind: one of ``harness.types.DATA_KINDS``.
        generator: a CPU generator; it advances by an amount that depends on kind and shape only.
        dtype: the result is rounded to it on the CPU.

    Raises:
        ValueError: unknown kind, or a generator that is not on the CPU.
    """
    if kind not in _DRAW:
        raise ValueError(f"unknown kind of data {kind!r}; known: {', '.join(_DRAW)}")
    if generator.device.type != "cpu":
        raise ValueError(f"data is drawn with a CPU generator, not one on {generator.device}")
    limit = HEAVY_TAILED_LIMIT_FLOAT16 if dtype is torch.float16 else HEAVY_TAILED_LIMIT
    return _DRAW[kind](shape, generator).clamp(-limit, limit).to(dtype).to(device)


def _parameter_value(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    values = _normal(shape, generator)
    if len(shape) >= 2:
        return values / math.sqrt(values[0].numel())
    if name.rpartition(".")[2] == "bias":
        return values * BIAS_STD
    return 1.0 + 0.1 * values  # gains of norms: near one, none equal


def fill_parameters(model: torch.nn.Module, seed: int, *, dtype: torch.dtype) -> None:
    """Overwrite every parameter in place with values that depend on its name, its shape and ``seed`` only.

    Weights (two or more dimensions): N(0, 1/fan_in). Biases: N(0, 0.25²). Other vectors (norm gains): 1 + N(0, 0.1²).
    Each has a generator of its own, seeded by ``seed`` and the name, so that adding a parameter moves no other.
    Values are rounded to ``dtype`` (the program's low-precision dtype) even where the parameter is float64: the
    oracle's copy then holds bit-equal values.
    """
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            generator = torch.Generator(device="cpu")
            # The CPU generator looks at the low 32 bits of a seed only: a checksum of both fills them.
            generator.manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            value = _parameter_value(name, parameter.shape, generator).to(dtype)
            parameter.copy_(value.to(parameter.dtype))
