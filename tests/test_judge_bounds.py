"""harness.judge.bounds: accumulators are caught when they are worse than their model, and never when they are not."""

from __future__ import annotations

import math

import pytest
import torch

from harness.data import draw
from harness.judge.bounds import (
    ACCUMULATORS,
    FP32,
    HOPPER,
    Accumulator,
    accumulation_bound,
    accumulation_excess,
    accumulator_of,
    accumulator_of_product,
    admissible_difference,
    never_promoted,
)
from harness.judge.compare import Worst, within
from harness.judge.formats import Precision, precision_of, round_to
from harness.judge.oracle import quantize
from harness.types import ARCHES, DATA_KINDS, Spec

BF16, FP16, FLOAT = (precision_of(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32))


def operands(kind: str, k: int, rows: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 values of two (rows, k) operands, float64."""
    generator = torch.Generator().manual_seed(k)
    recipe = Spec("float8_current_scaling")
    pair = [quantize(draw(kind, (rows, k), generator, torch.bfloat16), recipe, "input").values for _ in range(2)]
    return pair[0], pair[1]


def judged(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, accumulator: Accumulator, dtype: torch.dtype) -> Worst:
    precision = precision_of(dtype)
    excess = accumulation_excess(out.double(), a @ b.t(), precision)
    return within(excess, accumulation_bound(a.abs() @ b.abs().t(), a.shape[1], accumulator, precision))


def tensor_core(a: torch.Tensor, b: torch.Tensor, bits: int, promote: int | None) -> torch.Tensor:
    """Adds 32 products and the running sum, all cut off at ``bits`` below the largest; float32 every ``promote``."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64)
    group = torch.zeros_like(total)
    for start in range(0, a.shape[1], 32):
        products = a[:, None, start : start + 32] * b[None, :, start : start + 32]
        addends = torch.cat((products, group[..., None]), dim=-1)
        largest = addends.abs().amax(dim=-1, keepdim=True).clamp_min(2.0**-200)
        quantum = torch.exp2(torch.floor(torch.log2(largest)) - (bits - 1))
        group = (torch.trunc(addends / quantum) * quantum).sum(-1)
        if promote is not None and (start + 32) % promote == 0:
            total, group = (total + group).float().double(), torch.zeros_like(total)
    return (total + group).float().double()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("kind", DATA_KINDS)
@pytest.mark.parametrize("k", [128, 1024, 8192])
def test_float32_accumulation_is_within_half_of_its_bound(k: int, kind: str, dtype: torch.dtype) -> None:
    a, b = operands(kind, k, rows=16)
    out = (a.float() @ b.float().t()).to(dtype)
    if not torch.isfinite(out).all():
        pytest.skip("heavy-tailed sums of this length overflow float16")
    worst = judged(out, a, b, FP32, dtype)
    assert worst.ok
    assert worst.ratio < 0.5


@pytest.mark.parametrize("k", [128, 1024])
@pytest.mark.parametrize("kind", DATA_KINDS)
def test_accumulating_in_bfloat16_is_outside_the_float32_bound(kind: str, k: int) -> None:
    a, b = operands(kind, k)
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.bfloat16)
    for start in range(0, k, 32):
        total = (total.float() + (a[:, start : start + 32] @ b[:, start : start + 32].t()).float()).bfloat16()
    assert judged(total, a, b, FP32, torch.bfloat16).ratio > 2


@pytest.mark.parametrize("k", [128, 1024])
@pytest.mark.parametrize("kind", DATA_KINDS)
def test_a_truncating_accumulator_promoted_every_128_is_within_hoppers_bound(kind: str, k: int) -> None:
    a, b = operands(kind, k, rows=16)
    pessimistic = judged(tensor_core(a, b, 14, promote=128).float(), a, b, HOPPER, torch.float32)
    assert pessimistic.ok
    as_measured = judged(tensor_core(a, b, 15, promote=128).float(), a, b, HOPPER, torch.float32)
    assert as_measured.ratio < 0.5


def test_fourteen_bits_never_promoted_are_outside_hoppers_bound_on_long_positive_sums() -> None:
    a, b = operands("positive", 8192, rows=8)
    assert judged(tensor_core(a, b, 14, promote=None).float(), a, b, HOPPER, torch.float32).ratio > 2


@pytest.mark.parametrize("k", [128, 1024, 8192])
@pytest.mark.parametrize("kind", DATA_KINDS)
def test_a_truncating_accumulator_that_is_never_promoted_is_within_its_own_bound(kind: str, k: int) -> None:
    a, b = operands(kind, k, rows=8)
    own = never_promoted(HOPPER, k)
    assert judged(tensor_core(a, b, 14, promote=None).float(), a, b, own, torch.float32).ok
    assert judged(tensor_core(a, b, 15, promote=None).float(), a, b, own, torch.float32).ratio < 0.5


@pytest.mark.parametrize("k", [128, 1024])
@pytest.mark.parametrize("bits", [10, 8])
def test_fewer_bits_that_are_never_promoted_are_outside_the_wider_bound_too(bits: int, k: int) -> None:
    a, b = operands("positive", k, rows=8)
    worst = judged(tensor_core(a, b, bits, promote=None).float(), a, b, never_promoted(HOPPER, k), torch.float32)
    assert worst.ratio > 1.2


@pytest.mark.parametrize(("k", "measured"), [(128, -10), (1024, -6), (8192, -4)])
def test_the_wider_bound_holds_what_was_measured_and_is_not_ten_times_wider(k: int, measured: int) -> None:
    assert 1.2 < never_promoted(HOPPER, k).factor(k) / 2.0**measured < 10


def test_only_kernels_asked_for_it_and_only_where_it_exists_have_the_wider_bound() -> None:
    for arch in ACCUMULATORS:
        usual = accumulator_of(arch).factor(1024)
        assert accumulator_of_product(arch, 1024, fast=False).factor(1024) == usual
        wider = accumulator_of_product(arch, 1024, fast=True).factor(1024) > usual
        assert wider == (arch in ("sm89", "sm90"))
    assert accumulator_of_product("sm90", 128, fast=True).factor(128) == HOPPER.factor(128)


def test_dropping_one_product_of_many_is_seen() -> None:
    a, b = operands("positive", 1024)
    assert judged((a[:, 1:].float() @ b[:, 1:].float().t()).bfloat16(), a, b, FP32, torch.bfloat16).outside > 0


def test_factor_grows_with_k_as_gamma_does() -> None:
    assert FP32.factor(1000) == pytest.approx(1008 * 2.0**-24, rel=1e-3)
    assert FP32.factor(8192) > FP32.factor(128)
    assert HOPPER.factor(128) == pytest.approx(2.0**-8, rel=1e-2)


def test_every_architecture_of_the_schema_has_an_accumulator_with_a_source() -> None:
    assert set(ACCUMULATORS) == set(ARCHES) - {"host"}
    assert all(len(accumulator.source) > 40 for accumulator in ACCUMULATORS.values())
    with pytest.raises(ValueError, match="no accumulator model for architecture 'sm80'"):
        accumulator_of("sm80")


def test_one_rounding_of_the_output_is_no_excess_and_a_second_step_is() -> None:
    exact = torch.tensor([[1.0 + 2.0**-8 + 2.0**-20, 3.0, 0.0]], dtype=torch.float64)
    up = torch.tensor([[1.0 + 2.0**-7, 3.0, 0.0]], dtype=torch.float64)
    assert accumulation_excess(up, exact, BF16).tolist() == [[0.0, 0.0, 0.0]]
    far = torch.tensor([[1.0 + 2.0**-6, 3.0, 0.0]], dtype=torch.float64)
    assert accumulation_excess(far, exact, BF16)[0, 0] > 0


def test_nan_and_wrong_infinities_are_never_excused() -> None:
    exact = torch.tensor([1.0, 1e6, -1e6, 1e6, 65000.0], dtype=torch.float64)
    output = torch.tensor([math.nan, math.inf, math.inf, math.nan, math.inf], dtype=torch.float64)
    excess = accumulation_excess(output, exact, FP16)
    assert excess[1] == 0.0  # 1e6 does overflow float16
    assert [bool(x <= 1e300) for x in excess] == [False, True, False, False, False]


@pytest.mark.parametrize("precision", [BF16, FP16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("kind", DATA_KINDS)
def test_another_rounding_is_admissible_and_fp8_noise_is_not(kind: str, precision: Precision) -> None:
    a, b = operands(kind, 256, rows=128)
    own = round_to(a @ b.t(), precision)
    other = round_to(own * (1 + precision.unit), precision)
    bound = admissible_difference(own, precision, FP32)
    assert within((other - own).abs(), bound).ratio < 0.5
    generator = torch.Generator().manual_seed(256)
    raw = [draw(kind, (128, 256), generator, torch.bfloat16).double() for _ in range(2)]
    noise = within((round_to(raw[0] @ raw[1].t(), precision) - own).abs(), bound).ratio
    if kind != "positive":  # there FP8 noise hides below bfloat16 rounding, element by element: alpha's task
        assert noise > 2


def test_admissible_difference_scales_with_its_row_and_takes_any_shape() -> None:
    value = torch.ones(4, 8, dtype=torch.float64)
    value[2] *= 1000
    bound = admissible_difference(value, BF16, FP32)
    assert bound.shape == value.shape
    assert bool((bound[2] > 100 * bound[0]).all())
    value[2] = 1.0
    value[1, 3] = 1e6  # one huge element leaves the others their size
    assert bool((admissible_difference(value, BF16, FP32)[0] > 2.0**-7).all())
    for shape in ((8,), (2, 3, 8), (1, 8)):
        assert admissible_difference(torch.ones(shape, dtype=torch.float64), BF16, FP32).shape == shape
    assert bool((admissible_difference(torch.zeros(3, 3, dtype=torch.float64), BF16, FP32) < 1e-30).all())


def test_a_bias_that_cancels_its_product_leaves_the_rounding_of_the_product() -> None:
    """y = p + b with p near -b: p's rounding may fall the other way, one spacing of p, whatever is left of y."""
    precision = precision_of(torch.bfloat16)
    bias = torch.full((8,), -0.75, dtype=torch.float64)
    y = torch.full((4, 8), 2.0**-9, dtype=torch.float64)
    spacing = 2.0**-8  # of bfloat16 between 0.5 and 1
    assert bool((admissible_difference(y, precision, FP32, added=bias) >= spacing).all())
    assert bool((admissible_difference(y, precision, FP32) < spacing).all())
    # It allows that one spacing, not a product that is off by two per cent.
    assert bool((admissible_difference(y, precision, FP32, added=bias) < 0.02 * 0.75).all())
