"""How far a correct kernel may be from exact arithmetic: accumulators by architecture, and one rounding of the output.

A product ``out[r, c] = sum_k a[r, k] * b[c, k]`` is accumulated with an error and rounded once to the output dtype:

    |accumulated - exact| <= factor(K) * sum_k |a[r, k]| |b[c, k]|,    out = round(accumulated)

(Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.1.) The rounding moves a value by at most
half the spacing of the output type *at the value it produced*, so what is left of |out - exact| beyond that half
spacing is accumulation error alone, and only that part is compared with the accumulator's bound. An output type as
coarse as bfloat16 then doesn't blur the comparison, and a correct kernel can't exceed the bound by luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from harness.judge.formats import Precision, half_spacing

FP32_UNIT = math.ldexp(1.0, -24)

# Roundings that a kernel may make outside the sum: the product of the two decode scales, its application, NVFP4's two
# second-level scales, and the conversion of an operand that was dequantised first.
SCALE_ROUNDINGS = 8


@dataclass(frozen=True)
class Accumulator:
    """How a machine adds up products.

    ``group_error``: relative error (of the sum of magnitudes) inside one group of products added in reduced precision,
    0 when every addition is float32. ``spread``: largest error seen or expected relative to the *rms* of a row or
    column of the output, for data whose products have mixed signs; used where only an output is known and not the
    magnitudes it was summed from. ``source`` says where the numbers come from.
    """

    name: str
    group_error: float
    spread: float
    source: str

    def factor(self, k: int) -> float:
        """Worst-case |accumulated - exact| over sum |a||b| for K = ``k`` products, whatever the order of the additions.

        float32: gamma_n = n u / (1 - n u) with n = K + the scale roundings and u = 2^-24 (Higham, lemma 3.1).
        """
        n = (k + SCALE_ROUNDINGS) * FP32_UNIT
        return self.group_error + n / (1 - n)


FP32 = Accumulator(
    "float32",
    0.0,
    math.ldexp(1.0, -16),
    "oneDNN and PyTorch CPU kernels accumulate in float32. Measured on torch 2.13 (CPU): at most 2^-20 of sum |a||b| "
    "for K = 128 to 8192, 2^-19 of the output's rms",
)

# Inside one 128-group Hopper keeps 13 to 14 bits: four instructions of K = 32, each adding 32 products and the running
# sum, all aligned to the largest exponent and cut off. Cutting 33 addends at 2^-14 of a running sum that grows over the
# four instructions (1/4 + 2/4 + 3/4 + 1) gives 33 * 2.5 * 2^-14 = 2^-7.6 if every addend lost its whole tail; products
# of two FP8 numbers have at most 8 significant bits and lose about a quarter of that. Measured on an H200: 2^-10.
HOPPER = Accumulator(
    "fp8 tensor core, promoted to float32 every 128",
    math.ldexp(1.0, -8),
    math.ldexp(1.0, -8),
    "sm_90, precise accumulation (use_fast_accum=False). Measured on an H200, torch 2.11: 2^-10 of sum |a||b| at most "
    "for K = 128 to 8192; deepseek-ai/DeepGEMM and arXiv:2412.19437 section 3.3.2 describe the 14 bits. Fast "
    "accumulation is outside this bound from K = 1024 on and has bounds of its own (never_promoted)",
)

CONSERVATIVE = Accumulator(
    "fp8 or fp4 tensor core, not measured",
    HOPPER.group_error,
    HOPPER.spread,
    "Not measured here. Blackwell accumulates in float32 according to NVIDIA's PTX documentation and should be better; "
    "Ada is of Hopper's generation. Hopper's bound is used until somebody measures",
)

# One instruction of Hopper's FP8 tensor core adds 32 products to the running sum.
INSTRUCTION_PRODUCTS = 32
PROMOTED_PRODUCTS = 128


def never_promoted(promoted: Accumulator, k: int) -> Accumulator:
    """The same tensor core when it keeps the running sum of all ``k`` products in its own precision.

    Each instruction cuts 33 addends at 2^-14 of the running sum. On data of one sign that sum is i/n of the result
    after i of n = k / 32 instructions, so the cuts add up to (n + 1) / 2 of it, where a group of 128 (n = 4) has 2.5:
    the bounds grow by (n + 1) / 5. On data of mixed signs it grows like sqrt(i / n), which gives very nearly the same
    factor, 2 n / 3 over 3.07.
    """
    instructions = math.ceil(k / INSTRUCTION_PRODUCTS)
    growth = max(1.0, (instructions + 1) / (PROMOTED_PRODUCTS / INSTRUCTION_PRODUCTS + 1))
    return replace(
        promoted,
        name=f"fp8 tensor core, never promoted in K = {k}",
        group_error=promoted.group_error * growth,
        spread=promoted.spread * growth,
        source="Fast accumulation (use_fast_accum=True, use_split_accumulator=False). Measured on an H200, torch 2.11, "
        "as a power of two of sum |a||b|: at most 2^-10 at K = 128, 2^-6 at K = 1024, 2^-4 at K = 8192 (positive data; "
        "normal data 2^-11 and 2^-13 at the last two). These bounds: 2^-8, 2^-5.3, 2^-2.3",
    )


# Where the flag has an effect at all (cuBLAS documentation, CUBLASLT_MATMUL_DESC_FAST_ACCUM). On every other
# architecture a kernel that was asked for fast accumulation is held to the usual bound.
FAST_ARCHITECTURES = ("sm89", "sm90")

ACCUMULATORS = {
    "cpu": FP32,
    "sm89": CONSERVATIVE,
    "sm90": HOPPER,
    "sm100": CONSERVATIVE,
    "sm103": CONSERVATIVE,
    "sm120": CONSERVATIVE,
}


def accumulator_of(arch: str) -> Accumulator:
    """The accumulator of a resolved architecture. An emulated product on a GPU has the GPU's bound: it may run as a
    product of upcast operands on the same tensor cores.

    Raises:
        ValueError: an architecture without a row.
    """
    if arch not in ACCUMULATORS:
        raise ValueError(f"no accumulator model for architecture {arch!r}; known: {', '.join(ACCUMULATORS)}")
    return ACCUMULATORS[arch]


def accumulator_of_product(arch: str, k: int, fast: bool) -> Accumulator:
    """The accumulator of one product of depth ``k``; ``fast``: its kernel was asked for fast accumulation.

    Raises:
        ValueError: an architecture without a row.
    """
    accumulator = accumulator_of(arch)
    return never_promoted(accumulator, k) if fast and arch in FAST_ARCHITECTURES else accumulator


def accumulation_excess(output: torch.Tensor, exact: torch.Tensor, precision: Precision) -> torch.Tensor:
    """What one rounding of the output can't explain: max(0, |output - exact| - half spacing at output).

    Both (rows, columns) float64. An overflow that IEEE rounding would produce (|exact| beyond the largest number, the
    output infinite with the same sign) counts as no error; NaN stays NaN.
    """
    difference = (output - exact).abs()
    excess = (difference - half_spacing(output, precision)).clamp_min(0.0)
    if not math.isfinite(excess.sum().item()):
        overflow = (exact.abs() >= precision.max) & torch.isinf(output) & (output.sign() == exact.sign())
        excess = torch.where(overflow, 0.0, excess)
    return excess


def accumulation_bound(
    magnitudes: torch.Tensor, k: int, accumulator: Accumulator, precision: Precision
) -> torch.Tensor:
    """Largest accumulation error of a correct kernel, from ``magnitudes`` = sum_k |a||b| (rows, columns), float64."""
    return accumulator.factor(k) * magnitudes + precision.half_tiny


# A value in a program differs from the oracle's by at most: eight unit roundoffs of itself (four roundings to the
# program's dtype, each of which may fall the other way: a whole spacing, two unit roundoffs), and four units of
# roundoff and of accumulation of the values it was computed from, whose size its row and column tell.
OWN_UNITS = 8.0
SIZE_UNITS = 4.0

# Measured noise (harness.judge.oracle_noise) is a typical size, from one sample; the largest of many elements may be
# this many times as large.
NOISE_UNITS = 8.0


# A product that a bias was added to is as large as the result and the bias together, however small their sum: its
# rounding may fall the other way, one spacing, two unit roundoffs of it. That happens whole or not at all, so the bound
# is twice as large: at two units a good run would lie on it (measured 0.51 with float16, docs/detection.md).
ADDED_UNITS = 4.0


def admissible_difference(
    value: torch.Tensor,
    precision: Precision,
    accumulator: Accumulator,
    noise: torch.Tensor | None = None,
    added: torch.Tensor | None = None,
) -> torch.Tensor:
    """How far a correct program's tensor may be from the oracle's ``value``, elementwise, given equal FP8 operands.

    Covers what separates one tensor of a program from the FP8 products it is made of: their accumulation, their
    rounding, and a few elementwise operations in the program's dtype (bias, activation, residual), each rounded. It
    covers no change of an FP8 code: the oracle quantises the provider's own operands once they are within this bound,
    so that a rounding that falls the other way in one layer doesn't reach the next as quantisation noise.

    ``value``: float64, any shape; the last axis is a row. ``noise``: typical size, elementwise, of the rounding noise
    of operations that are more than a few elementwise ones; None where it wasn't measured. ``added``: the bias that
    the last operation added to a product, one element a column; where it cancels the product, ``value`` is small and
    the product's rounding isn't.
    """
    flat = value.reshape(-1, value.shape[-1]) if value.dim() > 1 else value.reshape(1, -1)
    factor = SIZE_UNITS * (precision.unit + accumulator.spread)
    bound = OWN_UNITS * precision.unit * flat.abs() + factor * typical_size(flat)
    if added is not None:
        bound = bound + (ADDED_UNITS * precision.unit + SIZE_UNITS * accumulator.spread) * added.abs()
    bound = (bound + 2 * OWN_UNITS * precision.half_tiny).reshape(value.shape)
    return bound if noise is None else bound + NOISE_UNITS * noise


def typical_size(flat: torch.Tensor) -> torch.Tensor:
    """Size of what each element of a (rows, columns) result was summed from, from the result alone.

    Of a product it is |row of A| |row of B|, of rank one: row rms * column rms / rms. A single huge element raises the
    rms and would make all others look small, hence not less than the smaller of row and column rms.
    """
    square = flat * flat
    row = square.mean(dim=1, keepdim=True).sqrt()
    if flat.shape[0] == 1:
        return row
    column = square.mean(dim=0, keepdim=True).sqrt()
    rms = square.mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    return torch.maximum(row * (column / rms), torch.minimum(row, column))
