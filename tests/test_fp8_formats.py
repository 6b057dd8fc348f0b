"""Number formats against values worked out by hand from the specifications."""

from __future__ import annotations

import math

import pytest
import torch

from harness.fp8 import formats


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0.0, 0),
        (0.25, 0),  # halfway between 0 and 0.5: the even code
        (0.2500001, 1),
        (0.7499999, 1),
        (0.75, 2),
        (1.0, 2),
        (1.25, 2),
        (1.2500001, 3),
        (1.75, 4),
        (2.5, 4),
        (2.5000002, 5),
        (3.4999998, 5),
        (3.5, 6),
        (5.0, 6),
        (5.0000005, 7),
        (6.0, 7),
        (1e30, 7),
        (math.inf, 7),
        (-0.0, 8),
        (-0.75, 10),
        (-math.inf, 15),
    ],
)
def test_e2m1_rounds_to_nearest_even_and_saturates(value: float, code: int) -> None:
    assert formats.e2m1_encode(torch.tensor([value], dtype=torch.float32)).item() == code


def test_e2m1_nan_is_the_largest_value_not_zero() -> None:
    assert formats.e2m1_encode(torch.tensor([math.nan])).item() == 7


def test_e2m1_every_code_survives_decode_and_encode() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    assert formats.e2m1_encode(formats.e2m1_decode(codes)).tolist() == codes.tolist()
    assert formats.e2m1_decode(codes).tolist()[:8] == [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def test_e2m1_packs_the_first_element_into_the_low_bits() -> None:
    codes = torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8)
    packed = formats.e2m1_pack(codes)
    assert packed.tolist() == [[0x21, 0x0F]]
    assert torch.equal(formats.e2m1_unpack(packed), codes)


@pytest.mark.parametrize(
    ("value", "e4m3", "e5m2"),
    [
        (448.0, 448.0, 448.0),
        (464.0, 448.0, 448.0),  # past e4m3's last value; nearer to 448 than to 512 in e5m2
        (1e6, 448.0, 57344.0),
        (math.inf, 448.0, 57344.0),
        (-math.inf, -448.0, -57344.0),
        (2.0**-9, 2.0**-9, 2.0**-9),  # smallest e4m3 subnormal
        (2.0**-10, 0.0, 2.0**-10),  # half of it: ties to even, which is zero
        (1.0625, 1.0, 1.0),  # halfway between 1 and 1.125
    ],
)
def test_fp8_cast_saturates_and_rounds_to_even(value: float, e4m3: float, e5m2: float) -> None:
    source = torch.tensor([value], dtype=torch.float32)
    assert formats.cast_saturating(source, formats.E4M3).float().item() == e4m3
    assert formats.cast_saturating(source, formats.E5M2).float().item() == e5m2


def test_fp8_cast_keeps_nan() -> None:
    for target in (formats.E4M3, formats.E5M2):
        assert formats.cast_saturating(torch.tensor([math.nan]), target).float().isnan().all()


@pytest.mark.parametrize(
    ("value", "exponent"),
    [
        (1.0, 0),
        (1.0000001, 1),
        (0.99999994, 0),
        (2.0**-126, -126),
        (2.0**-127, -127),
        (2.0**-127 * 1.5, -126),
        (0.0, -127),
        (2.0**127, 127),
        (2.0**127 * 1.5, 127),
        (math.inf, 127),
        (math.nan, 127),
    ],
)
def test_e8m0_ceil(value: float, exponent: int) -> None:
    assert formats.e8m0_ceil(torch.tensor([value], dtype=torch.float32)).item() == exponent


@pytest.mark.parametrize(
    ("amax", "exponent"),
    [(448.0, 0), (511.0, 0), (512.0, 1), (0.0, -127), (1e-40, -127), (1.0, -8), (math.inf, 127), (math.nan, 127)],
)
def test_e8m0_floor(amax: float, exponent: int) -> None:
    assert formats.e8m0_floor(torch.tensor([amax]), formats.E4M3.emax).item() == exponent


def test_exp2_is_exact_over_the_whole_range() -> None:
    exponents = torch.arange(-127, 128, dtype=torch.int32)
    assert formats.exp2_exact(exponents).tolist() == [2.0**e for e in range(-127, 128)]
    assert formats.e8m0_tensor(exponents).to(torch.float32).tolist() == [2.0**e for e in range(-127, 128)]


@pytest.mark.parametrize("dtype", [torch.float8_e8m0fnu, torch.float8_e4m3fn])
def test_scale_values_equal_torchs_own_conversion(dtype: torch.dtype) -> None:
    scale = torch.arange(127, dtype=torch.uint8).view(dtype)
    assert torch.equal(formats.scale_values(scale), scale.to(torch.float32))


@pytest.mark.parametrize(("value", "floored"), [(1.0, 1.0), (1.9999999, 1.0), (2.0, 2.0), (3.4e38, 2.0**127)])
def test_floor_power_of_two(value: float, floored: float) -> None:
    assert formats.floor_power_of_two(torch.tensor([value])).item() == floored
