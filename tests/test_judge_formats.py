"""harness.judge.formats: every rounding against brute force, every code against torch's own casts."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.formats import (
    E2M1,
    E4M3,
    E5M2,
    FORMATS,
    PRECISIONS,
    Format,
    decode,
    encode,
    half_spacing,
    precision_of,
    round_to,
    to_float32,
)

TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
ALL = pytest.mark.parametrize("fmt", FORMATS.values(), ids=list(FORMATS))
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NEAR = st.floats(min_value=-1000, max_value=1000, width=32)


def code_of(x: float, fmt: Format) -> int:
    return int(encode(torch.tensor([x], dtype=torch.float64), fmt)[0])


def value_of(x: float, fmt: Format) -> float:
    return float(decode(encode(torch.tensor([x], dtype=torch.float64), fmt), fmt)[0])


def nearest_even(x: float, fmt: Format) -> float:
    """By exhaustion: the nearest of all finite values, a tie to the even code; beyond the largest, the largest."""
    codes = range(fmt.max_code + 1)
    best = min(codes, key=lambda code: (abs(Fraction(fmt.value(code)) - abs(Fraction(x))), code & 1))
    return math.copysign(fmt.value(best), x)


def test_tables_hold_the_formats_landmarks() -> None:
    assert (E4M3.max, E4M3.emax, E4M3.emin) == (448.0, 8, -6)
    assert (E5M2.max, E5M2.emax, E5M2.emin) == (57344.0, 15, -14)
    assert (E4M3.value(1), E5M2.value(1)) == (2.0**-9, 2.0**-16)
    assert [E2M1.value(code) for code in range(8)] == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert math.isnan(E4M3.value(0x7F))
    assert math.isnan(E4M3.value(0xFF))
    assert (E5M2.value(0x7C), E5M2.value(0xFC)) == (math.inf, -math.inf)
    assert all(math.isnan(E5M2.value(code)) for code in (0x7D, 0x7E, 0x7F))


@pytest.mark.parametrize("fmt", [E4M3, E5M2], ids=["e4m3", "e5m2"])
def test_all_256_codes_decode_as_torch_decodes_them(fmt: Format) -> None:
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    theirs = codes.view(TORCH[fmt.name]).to(torch.float64)
    assert torch.equal(decode(codes, fmt).nan_to_num(nan=-1.0), theirs.nan_to_num(nan=-1.0))


@pytest.mark.parametrize("fmt", [E4M3, E5M2], ids=["e4m3", "e5m2"])
def test_all_65536_bfloat16_values_encode_as_torch_encodes_them_after_clamping(fmt: Format) -> None:
    values = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    theirs = values.float().clamp(-fmt.max, fmt.max).to(TORCH[fmt.name]).view(torch.uint8)
    assert torch.equal(encode(values.to(torch.float64), fmt), theirs)


@ALL
@given(x=st.one_of(FLOATS, NEAR, st.floats(-8, 8, width=16)))
def test_encode_is_the_nearest_value_ties_to_even(fmt: Format, x: float) -> None:
    assert value_of(x, fmt) == nearest_even(x, fmt)


@ALL
def test_every_halfway_point_goes_to_the_even_code_and_its_neighbours_to_theirs(fmt: Format) -> None:
    for code in range(fmt.max_code):
        middle = (fmt.value(code) + fmt.value(code + 1)) / 2
        assert code_of(middle, fmt) == code + (code & 1)
        assert code_of(math.nextafter(middle, 0), fmt) == code
        assert code_of(math.nextafter(middle, math.inf), fmt) == code + 1


@ALL
def test_encode_is_idempotent_on_every_finite_code(fmt: Format) -> None:
    codes = [c for c in range(2 * fmt.sign_code) if c & (fmt.sign_code - 1) <= fmt.max_code]
    tensor = torch.tensor(codes, dtype=torch.uint8)
    assert torch.equal(encode(decode(tensor, fmt), fmt), tensor)


@ALL
@given(a=FLOATS, b=FLOATS)
def test_encode_is_monotonic_and_odd(fmt: Format, a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    assert value_of(low, fmt) <= value_of(high, fmt)
    assert value_of(-a, fmt) == -value_of(a, fmt)


@pytest.mark.parametrize("x", [464.0, 465.0, 480.0, 1000.0, 3e38, math.inf])
def test_values_beyond_the_range_saturate(x: float) -> None:
    assert code_of(x, E4M3) == 0x7E
    assert code_of(-x, E4M3) == 0xFE
    assert code_of(x * 128, E5M2) == 0x7B  # never infinity, which e5m2 has
    assert code_of(x, E2M1) == 0x7


def test_nan_stays_nan_where_there_is_one() -> None:
    assert (code_of(math.nan, E4M3), code_of(math.nan, E5M2), code_of(math.nan, E2M1)) == (0x7F, 0x7F, 0x7)
    mixed = torch.tensor([1.0, math.nan, -2.0, math.inf], dtype=torch.float64)
    assert encode(mixed, E4M3).tolist() == [0x38, 0x7F, 0xC0, 0x7E]


@ALL
def test_zero_keeps_its_sign_and_subnormals_are_exact(fmt: Format) -> None:
    assert code_of(0.0, fmt) == 0
    assert code_of(-0.0, fmt) == fmt.sign_code
    smallest = fmt.value(1)
    assert code_of(smallest, fmt) == 1
    assert code_of(smallest / 2, fmt) == 0  # halfway to zero: even
    assert code_of(smallest / 2 * 1.001, fmt) == 1
    assert code_of(-smallest / 2, fmt) == fmt.sign_code
    assert code_of(1e-300, fmt) == 0  # float64 far below every format


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@given(x=st.one_of(FLOATS, st.floats(allow_nan=False), st.floats(-1e-3, 1e-3)))
def test_round_to_is_the_nearest_value_of_the_dtype(dtype: torch.dtype, x: float) -> None:
    precision = precision_of(dtype)
    got = float(round_to(torch.tensor([x, 1.0], dtype=torch.float64), precision)[0])
    below, above = neighbours(x, dtype)
    if math.isinf(below) or math.isinf(above):
        assert math.isinf(got) or abs(got) == precision.max
        return
    distances = abs(Fraction(below) - Fraction(x)), abs(Fraction(above) - Fraction(x))
    if distances[0] != distances[1]:
        assert got == (below if distances[0] < distances[1] else above)
    elif below != above:
        assert got == (below if is_even(below, dtype) else above)


def neighbours(x: float, dtype: torch.dtype) -> tuple[float, float]:
    """The values of ``dtype`` on either side of x, found by stepping from torch's own cast."""
    start = torch.tensor(x, dtype=torch.float64).to(dtype)
    candidates = sorted(
        {float(torch.nextafter(start, torch.tensor(s * math.inf, dtype=dtype))) for s in (-1, 1)} | {float(start)}
    )
    below = max((c for c in candidates if c <= x), default=-math.inf)
    above = min((c for c in candidates if c >= x), default=math.inf)
    return below, above


def is_even(x: float, dtype: torch.dtype) -> bool:
    bits = {torch.float32: torch.int32}.get(dtype, torch.int16)
    return int(torch.tensor([x], dtype=torch.float64).to(dtype).view(bits)[0]) % 2 == 0


def test_round_to_rounds_once_where_a_detour_through_float32_rounds_twice() -> None:
    x = 1 + 2.0**-8 + 2.0**-40  # just above a bfloat16 tie; float32 would make it the tie, and the tie goes down
    tensor = torch.tensor([x], dtype=torch.float64)
    assert float(round_to(tensor, precision_of(torch.bfloat16))) == 1 + 2.0**-7
    assert float(tensor.float().bfloat16()) == 1.0


def test_round_to_overflows_as_ieee_does_and_keeps_nan() -> None:
    half = precision_of(torch.float16)
    x = torch.tensor([65504.0, 65519.9, 65520.0, -1e9, math.inf, math.nan, 6e-8, 2e-8, -0.0], dtype=torch.float64)
    got = round_to(x, half)
    assert got[:5].tolist() == [65504.0, 65504.0, math.inf, -math.inf, math.inf]
    assert math.isnan(got[5])
    assert got[6:8].tolist() == [2.0**-24, 0.0]
    assert math.copysign(1, float(got[8])) == -1


def test_half_spacing_is_the_most_that_one_rounding_moves() -> None:
    precision = precision_of(torch.bfloat16)
    x = torch.tensor([1.0, 1.5, 2.0, 3.0, 0.0], dtype=torch.float64)
    assert half_spacing(x, precision).tolist() == [2.0**-8, 2.0**-8, 2.0**-7, 2.0**-7, 2.0**-134]
    values = torch.randn(4096, dtype=torch.float64)
    rounded = round_to(values, precision)
    assert bool(((rounded - values).abs() <= half_spacing(rounded, precision)).all())


@given(a=FLOATS, b=st.floats(min_value=2.0**-100, max_value=2.0**100, width=32))
def test_float64_then_one_rounding_is_the_float32_operation(a: float, b: float) -> None:
    x, y = torch.tensor([a]), torch.tensor([b])
    quotient = to_float32(x.double() / y.double())
    assert torch.equal(quotient, (x / y).double())
    assert torch.equal(to_float32(x.double() * y.double()), (x * y).double())


def test_unknown_dtype_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="float64 are not judged"):
        precision_of(torch.float64)
