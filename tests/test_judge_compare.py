"""harness.judge.compare: NaN passes nothing, and places are named right."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.compare import (
    SHOWN,
    bit_difference,
    first_index,
    same_bits,
    same_values,
    shorten,
    sqnr,
    unravel,
    within,
)
from harness.types import Finding


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_within_is_inclusive_and_names_the_worst_element() -> None:
    worst = within(t(0.5, 1.0, 0.1), t(1.0, 1.0, 1.0))
    assert worst.ok
    assert (worst.ratio, worst.index, worst.outside) == (1.0, (1,), 0)
    worst = within(torch.tensor([[0.0, 3.0], [8.0, 0.0]]).double(), torch.ones(2, 2).double())
    assert not worst.ok
    assert (worst.ratio, worst.index, worst.outside, worst.count) == (8.0, (1, 0), 2, 4)
    assert str(worst) == "8 at [1, 0] (2 of 4 outside, by up to 8 times)"


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        (math.nan, 1.0),
        (1.0, math.nan),
        (math.nan, math.nan),
        (math.inf, 1.0),
        (math.inf, math.inf),
        (1.0, math.inf),
        (math.nan, math.inf),
        (1.0, 0.0),
        (1e-300, 0.0),
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_nan_and_infinity_pass_nothing_wherever_they_stand(value: float, bound: float, position: int) -> None:
    values, bounds = t(0.0, 0.5, 0.9), t(1.0, 1.0, 1.0)
    values[position], bounds[position] = value, bound
    worst = within(values, bounds)
    assert not worst.ok
    assert worst.outside == 1
    assert worst.index == (position,)
    assert worst.ratio > 1


def test_zero_within_zero_holds() -> None:
    assert within(t(0.0, 0.5), t(0.0, 1.0)).ok
    assert within(t(0.0), t(0.0)).ratio == 0.0
    assert within(torch.empty(0), torch.empty(0)).ok


@given(
    pairs=st.lists(
        st.tuples(st.floats(min_value=0, width=32), st.floats(min_value=0, width=32)), min_size=1, max_size=12
    )
)
def test_within_agrees_with_python(pairs: list[tuple[float, float]]) -> None:
    values, bounds = t(*(p[0] for p in pairs)), t(*(p[1] for p in pairs))
    bad = [not (v <= b and math.isfinite(b)) for v, b in pairs]
    worst = within(values, bounds)
    assert worst.ok is not any(bad)
    assert worst.outside == sum(bad)


def test_bits_tell_minus_zero_and_equal_nan() -> None:
    a = torch.tensor([0.0, 1.0, math.nan], dtype=torch.bfloat16)
    b = torch.tensor([-0.0, 1.0, math.nan], dtype=torch.bfloat16)
    assert bit_difference(a, b).tolist() == [True, False, False]
    assert same_bits(a, a.clone())
    assert not same_bits(a, b)
    assert not same_bits(a, a.float())
    assert not same_bits(a, a[:2])
    assert same_bits(torch.zeros(2, 3).t(), torch.zeros(3, 2))


def test_values_compare_across_dtypes_and_nan_equals_nan() -> None:
    a = torch.tensor([1.0, math.nan, 0.1], dtype=torch.bfloat16)
    assert same_values(a, a.double()).all()
    assert same_values(a, torch.tensor([1.0, 1.0, 0.1])).tolist() == [True, False, False]


def test_indices() -> None:
    assert [unravel(i, (2, 3)) for i in (0, 2, 3, 5)] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert unravel(0, ()) == ()
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1, 2] = mask[2, 0] = True
    assert first_index(mask) == (1, 2)


def test_sqnr() -> None:
    assert sqnr(t(10.0, 0.0), t(11.0, 0.0)) == pytest.approx(20.0)
    assert sqnr(t(1.0), t(1.0)) == math.inf
    assert sqnr(t(0.0), t(1.0)) == -math.inf
    assert sqnr(t(1.0), t(math.inf)) == -math.inf
    assert math.isnan(sqnr(t(1.0), t(math.nan)))


def test_shorten_keeps_the_first_and_counts_the_rest() -> None:
    findings = [Finding("numerics.codes", "a", f"b{i}") for i in range(SHOWN + 2)]
    kept = shorten(findings)
    assert [f.got for f in kept] == ["b0", "b1", "b2 (and 2 more)"]
    assert shorten(findings[:SHOWN]) == findings[:SHOWN]
