"""harness.judge.alpha: 1 for FP8, 0 without it, per product, and an interval that neither noise nor size upsets."""

from __future__ import annotations

import math

import pytest
import torch

from harness.data import draw
from harness.judge.alpha import DECISIVE, Alpha, Component, Shares, noise_rms, project_shares, rounding_rms
from harness.judge.alpha import project as project_with
from harness.judge.bounds import FP32, HOPPER, Accumulator
from harness.judge.formats import Precision, precision_of, round_to
from harness.judge.oracle import quantize
from harness.types import DATA_KINDS, Spec

BF16 = precision_of(torch.bfloat16)


def project(
    deviation: torch.Tensor, shares: list[Component], value: torch.Tensor, precision: Precision, acc: Accumulator
) -> list[Alpha]:
    return project_with(deviation, shares, noise_rms(value, precision, acc))


def product(kind: str, seed: int = 0, k: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact product of two operands, and the product of their quantised values."""
    generator = torch.Generator().manual_seed(seed)
    raw = [draw(kind, (128, k), generator, torch.bfloat16) for _ in range(2)]
    values = [quantize(x, Spec("float8_current_scaling"), "input").values for x in raw]
    return raw[0].double() @ raw[1].double().t(), values[0] @ values[1].t()


@pytest.mark.parametrize("kind", DATA_KINDS)
@pytest.mark.parametrize("k", [128, 512])
def test_fp8_is_one_and_bfloat16_is_zero(kind: str, k: int) -> None:
    exact, quantised = product(kind, k=k)
    own = round_to(quantised, BF16)
    share = [Component("all", quantised - exact)]
    kernel = round_to((quantised.float() * (1 + 2.0**-20)).double(), BF16)  # other roundings here and there
    (good,) = project(kernel - own, share, own, BF16, FP32)
    assert good.ok
    assert good.decisive
    assert abs(good.alpha - 1) < good.bound / 2
    (bad,) = project(round_to(exact, BF16) - own, share, own, BF16, FP32)
    assert not bad.ok
    assert abs(bad.alpha) < 0.1
    assert abs(bad.alpha - 1) > 2 * bad.bound


def test_half_of_the_rows_in_bfloat16_is_in_between() -> None:
    exact, quantised = product("normal")
    own = round_to(quantised, BF16)
    mixed = own.clone()
    mixed[:64] = round_to(exact, BF16)[:64]
    (alpha,) = project(mixed - own, [Component("all", quantised - exact)], own, BF16, FP32)
    assert not alpha.ok
    assert abs(alpha.alpha - 0.5) < 0.1


def test_each_component_has_its_own_alpha_even_when_they_overlap() -> None:
    generator = torch.Generator().manual_seed(1)
    first, second, third = (torch.randn(64, 64, generator=generator, dtype=torch.float64) for _ in range(3))
    second = second + 0.5 * first
    parts = [Component("a", first), Component("b", second), Component("c", third)]
    value = 30 * torch.randn(64, 64, generator=generator, dtype=torch.float64)
    results = {a.label: a for a in project(-second, parts, value, BF16, FP32)}
    assert results["b"].alpha == pytest.approx(0.0, abs=1e-9)
    assert results["a"].alpha == pytest.approx(1.0, abs=1e-9)
    assert results["c"].alpha == pytest.approx(1.0, abs=1e-9)
    assert (results["a"].ok, results["b"].ok) == (True, False)


def test_nan_is_never_in_the_interval() -> None:
    exact, quantised = product("normal")
    deviation = torch.zeros_like(exact)
    deviation[3, 4] = math.nan
    (alpha,) = project(deviation, [Component("all", quantised - exact)], quantised, BF16, FP32)
    assert not alpha.ok


def test_components_without_a_share_are_left_out() -> None:
    exact, quantised = product("normal")
    zero = torch.zeros_like(exact)
    results = project(zero, [Component("none", zero), Component("all", quantised - exact)], quantised, BF16, FP32)
    assert [a.label for a in results] == ["all"]
    assert project(zero, [Component("none", zero)], quantised, BF16, FP32) == []


def test_the_interval_never_reaches_what_it_must_exclude() -> None:
    value = 1e6 * torch.ones(64, 64, dtype=torch.float64)
    tiny = Component("all", 1e-9 * torch.randn(64, 64, dtype=torch.float64))
    (alpha,) = project(torch.zeros_like(value), [tiny], value, BF16, FP32)
    assert alpha.bound == DECISIVE
    assert not alpha.decisive


def test_a_coarser_accumulator_widens_the_interval() -> None:
    exact, quantised = product("positive")
    share = [Component("all", quantised - exact)]
    zero = torch.zeros_like(exact)
    (cpu,), (hopper,) = (project(zero, share, quantised, BF16, a) for a in (FP32, HOPPER))
    assert cpu.bound < hopper.bound < DECISIVE


def test_shares_give_the_whole_first_and_do_not_judge_the_rest() -> None:
    exact, quantised = product("normal")
    whole, rest = quantised - exact, torch.randn(128, 128, dtype=torch.float64)
    zero, noise = torch.zeros_like(exact), noise_rms(quantised, BF16, FP32)
    only = Shares(Component("all", whole), (Component("layer fprop", whole),))
    assert [a.label for a in project_shares(zero, only, noise)] == ["layer fprop"]
    more = Shares(Component("all", whole + rest), (Component("layer wgrad", whole),), Component("rest", rest))
    assert [a.label for a in project_shares(zero, more, noise)] == ["all", "layer wgrad"]


def test_measured_noise_widens_the_interval() -> None:
    _, quantised = product("normal")
    quiet, loud = noise_rms(quantised, BF16, FP32), noise_rms(quantised, BF16, FP32, torch.full_like(quantised, 3.0))
    assert loud > quiet
    assert loud == pytest.approx(math.hypot(quiet, 3.0))


def test_a_share_on_the_elements_that_are_rounded_most_widens_its_own_interval() -> None:
    """The weight gradient of a shared layer on heavy-tailed data: the rounding of its largest element decided."""
    generator = torch.Generator().manual_seed(0)
    value = 300 * torch.randn(128, 256, generator=generator, dtype=torch.float64)
    spread = 13 * torch.randn(128, 256, generator=generator, dtype=torch.float64)
    value[0, 0] = 10400.0
    peaked = spread.clone()
    peaked[0, 0] = 1000.0
    deviation = torch.zeros_like(value)
    deviation[0, 0] = -32.0  # half of a spacing
    noise, rounding = noise_rms(value, BF16, FP32), rounding_rms(value, BF16)
    ((same,), (wide,)) = (project_with(deviation, [Component("all", peaked)], noise, r) for r in (None, rounding))
    assert same.alpha == wide.alpha
    assert abs(wide.alpha - 1) < wide.bound / 2 < DECISIVE / 2
    assert abs(wide.alpha - 1) > same.bound / 2
    ((even,), (level,)) = (project_with(deviation, [Component("all", spread)], noise, r) for r in (None, rounding))
    assert level.bound < 1.1 * even.bound
    (small,) = project_with(deviation, [Component("all", torch.where(value > 100, 0.0, spread))], noise, rounding)
    (same,) = project_with(deviation, [Component("all", torch.where(value > 100, 0.0, spread))], noise)
    assert small.bound >= same.bound  # never narrower


def test_rounding_is_the_part_of_the_noise_that_is_not_the_accumulators() -> None:
    value = torch.randn(64, 64, dtype=torch.float64)
    rounding = float(rounding_rms(value, BF16).square().mean().sqrt())
    assert 0.9 * noise_rms(value, BF16, FP32) < rounding <= noise_rms(value, BF16, FP32)
    assert rounding_rms(value, BF16).shape == value.shape


def test_what_is_wrong_in_all_elements_alike_widens_the_bound_by_all_of_it() -> None:
    exact, quantised = product("positive")
    own, share = round_to(quantised, BF16), [Component("all", quantised - exact)]
    noise, off = noise_rms(own, BF16, FP32), 2.0**-8
    (bare,) = project_with(own * off, share, noise)
    (told,) = project_with(own * off, share, noise, common=own.abs() * off)
    assert not bare.ok
    assert told.bound == DECISIVE or told.ok
    (none,) = project_with(torch.zeros_like(own), share, noise, common=torch.zeros_like(own))
    assert none.bound == bare.bound


def test_subnormal_numbers_are_rounded_in_steps_of_one_size() -> None:
    half = precision_of(torch.float16)
    value = torch.tensor([0.0, 2.0**-24, 2.0**-18, 2.0**-14, 1.0], dtype=torch.float64)
    steps = rounding_rms(value, half) / rounding_rms(value, half)[-1]
    assert steps.tolist() == [0.0, 2.0**-14, 2.0**-14, 2.0**-14, 1.0]
