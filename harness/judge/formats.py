"""Number formats of the judge, from their definitions: every value of a format as a table, rounding as integer logic.

Nothing here asks torch to cast to a narrow type: the oracle must not share a cast with what it judges. Values travel
as float64, which holds every product and quotient used here well beyond the precision that is kept.

Sources: E4M3 and E5M2: OCP 8-bit Floating Point Specification (OFP8) 1.0, tables 1 and 2. E2M1 and E8M0: OCP
Microscaling Formats (MX) 1.0, sections 5.3.3 and 5.4.1. binary16, binary32: IEEE 754-2019 table 3.5; bfloat16: the same
rules with 8 exponent and 7 mantissa bits.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch

_F64_BIAS = 1023
_F64_MANTISSA = 52
_F64_EXPONENT_MASK = 0x7FF


@dataclass(frozen=True)
class Format:
    """A narrow floating format: sign, exponent and mantissa bits, exponent bias.

    ``max_code`` is the code of the largest finite positive value; ``nan_code`` that of the NaN a cast produces, None
    where the format has no NaN (a cast of NaN then gives ``max_code``, as PTX ``cvt.satfinite`` does for E2M1).
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    nan_code: int | None
    first_special: int  # smallest positive code that is not a finite number

    @property
    def sign_code(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def max(self) -> float:
        return self.value(self.max_code)

    @property
    def emax(self) -> int:
        """Exponent of the largest power of two in the format."""
        return math.frexp(self.max)[1] - 1

    def value(self, code: int) -> float:
        """The value of one code, by definition: (-1)^s * 2^(e - bias) * 1.m, or 2^(1 - bias) * 0.m where e = 0."""
        magnitude = code & (self.sign_code - 1)
        sign = -1.0 if code & self.sign_code else 1.0
        if magnitude >= self.first_special:
            # E5M2 keeps IEEE's infinity (mantissa 0); E4M3's only special code is NaN.
            is_inf = self.name == "e5m2" and magnitude == self.first_special
            return sign * math.inf if is_inf else math.nan
        exponent, mantissa = magnitude >> self.mantissa_bits, magnitude & ((1 << self.mantissa_bits) - 1)
        if exponent == 0:
            return sign * math.ldexp(mantissa, self.emin - self.mantissa_bits)
        return sign * math.ldexp((1 << self.mantissa_bits) + mantissa, exponent - self.bias - self.mantissa_bits)


E4M3 = Format("e4m3", 4, 3, 7, max_code=0x7E, nan_code=0x7F, first_special=0x7F)
E5M2 = Format("e5m2", 5, 2, 15, max_code=0x7B, nan_code=0x7F, first_special=0x7C)
E2M1 = Format("e2m1", 2, 1, 1, max_code=0x7, nan_code=None, first_special=0x8)
FORMATS = {f.name: f for f in (E4M3, E5M2, E2M1)}


@functools.lru_cache(maxsize=32)
def decode_table(name: str, device: torch.device) -> torch.Tensor:
    """float64 values of all codes of a format, 256 entries; E2M1 codes above 15 are NaN (they can't be E2M1)."""
    fmt = FORMATS[name]
    count = 2 * fmt.sign_code
    values = [fmt.value(code) if code < count else math.nan for code in range(256)]
    return torch.tensor(values, dtype=torch.float64, device=device)


def decode(codes: torch.Tensor, fmt: Format) -> torch.Tensor:
    """float64 values of uint8 ``codes``, any shape."""
    table = decode_table(fmt.name, codes.device)
    return table.index_select(0, codes.reshape(-1).to(torch.int32)).view(codes.shape)


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2^e as float64 for int64 ``exponent`` in [-1022, 1023]."""
    return (exponent + _F64_BIAS).mul_(1 << _F64_MANTISSA).view(torch.float64)


def floor_log2(x: torch.Tensor) -> torch.Tensor:
    """floor(log2 |x|) as int64 for float64 ``x``; -1023 for zero (and for float64 subnormals), 1024 for inf and NaN."""
    return (x.view(torch.int64) >> _F64_MANTISSA).bitwise_and_(_F64_EXPONENT_MASK).sub_(_F64_BIAS)


def encode(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Codes (uint8) of float64 ``x``: nearest, ties to even, saturating (infinities too); NaN as the format says.

    With e the exponent of x, not below emin, and n = x / 2^(e - m) rounded to an integer, the magnitude's code is
    (e - emin) * 2^m + n: for subnormals e = emin and the code is n, and a carry of n to the next binade adds one step.
    """
    exponent = floor_log2(x).clamp_(fmt.emin, fmt.emax + 1)
    # The product is exact and torch.round ties to even.
    steps = power_of_two(fmt.mantissa_bits - exponent).mul_(x).abs_().round_()
    finite = math.isfinite(x.sum().item())  # one reduction for what is nearly always so
    if not finite:
        steps = steps.nan_to_num(nan=0.0)
    above = float(1 << (fmt.mantissa_bits + 2))  # any count beyond the format's range
    counted = steps.clamp_max_(above).to(torch.int64)
    code = exponent.sub_(fmt.emin).mul_(1 << fmt.mantissa_bits).add_(counted).clamp_max_(fmt.max_code)
    sign = (x.view(torch.int64) >> 63).bitwise_and_(fmt.sign_code)
    if not finite:
        nan = torch.isnan(x)
        code = torch.where(nan, fmt.max_code if fmt.nan_code is None else fmt.nan_code, code)
        sign = sign if fmt.nan_code is not None else torch.where(nan, 0, sign)
    return (code | sign).to(torch.uint8)


@dataclass(frozen=True)
class Precision:
    """A wide format that results are rounded to. ``unit``: unit roundoff, half the spacing at one."""

    name: str
    mantissa_bits: int
    emin: int
    max: float

    @property
    def unit(self) -> float:
        return math.ldexp(1.0, -self.mantissa_bits - 1)

    @property
    def half_tiny(self) -> float:
        """Half the smallest subnormal: the most that rounding moves a value near zero."""
        return math.ldexp(1.0, self.emin - self.mantissa_bits - 1)


PRECISIONS = {
    torch.bfloat16: Precision("bfloat16", 7, -126, math.ldexp(255, 120)),
    torch.float16: Precision("float16", 10, -14, 65504.0),
    torch.float32: Precision("float32", 23, -126, math.ldexp((1 << 24) - 1, 104)),
}


def precision_of(dtype: torch.dtype) -> Precision:
    """The precision of a program's dtype.

    Raises:
        ValueError: a dtype that no program is judged in.
    """
    if dtype not in PRECISIONS:
        raise ValueError(f"results in {dtype} are not judged; known: {', '.join(p.name for p in PRECISIONS.values())}")
    return PRECISIONS[dtype]


def round_to(x: torch.Tensor, precision: Precision) -> torch.Tensor:
    """float64 ``x`` rounded once to ``precision``, nearest even, kept in float64; beyond its range ±inf, as IEEE does.

    Rounding through float32 first (what a float64-to-bfloat16 cast does) would round twice.
    """
    bits = x.view(torch.int64)
    drop = _F64_MANTISSA - precision.mantissa_bits
    half = (1 << (drop - 1)) - 1
    even = (bits >> drop).bitwise_and_(1)
    rounded = even.add_(bits).add_(half).bitwise_and_(-(1 << drop)).view(torch.float64)
    magnitude = x.abs()
    if x.numel() == 0 or (
        magnitude.amax().item() <= precision.max and magnitude.amin().item() >= math.ldexp(1.0, precision.emin)
    ):
        return rounded
    quantum = math.ldexp(1.0, precision.emin - precision.mantissa_bits)
    subnormal = torch.round(x / quantum) * quantum
    rounded = torch.where(magnitude < math.ldexp(1.0, precision.emin), subnormal, rounded)
    infinite = torch.where(x > 0, math.inf, -math.inf).to(x.dtype)
    rounded = torch.where(rounded.abs() > precision.max, infinite, rounded)
    return torch.where(torch.isfinite(x), rounded, x)


def half_spacing(x: torch.Tensor, precision: Precision) -> torch.Tensor:
    """Half the distance between neighbours of ``precision`` at float64 ``x``: the most that one rounding moves x."""
    return power_of_two(floor_log2(x).clamp(precision.emin, 1000) - (precision.mantissa_bits + 1))


def to_float32(x: torch.Tensor) -> torch.Tensor:
    """One IEEE rounding of float64 ``x`` to float32, kept in float64: one operation of float32 scale arithmetic.

    For +, *, / of float32 operands, float64 arithmetic followed by this is the correctly rounded float32 operation
    (53 >= 2 * 24 + 2 bits: double rounding is innocuous, Figueroa, "When is double rounding innocuous?", SIGNUM 1995).
    """
    return x.to(torch.float32).to(torch.float64)
