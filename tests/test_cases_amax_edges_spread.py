"""cases.amax_edges_spread: its statements hold where bad values stay in their lines, and fail where they don't."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cases.amax_edges_spread import Stack, bad_gradient, bad_lines, beyond, nan_weight, state_lines, zero_gradient
from harness.probing import Probing
from harness.types import Axes, Evidence, Spec

INF, NAN = float("inf"), float("nan")
VARIANTS = ("infinite", "nan")
Change = Callable[[torch.Tensor], torch.Tensor]


def probing(recipe: str = "float8_current_scaling") -> Probing:
    axes = Axes("amax_edges", Spec("reference"), Spec(recipe))
    provider: Any = SimpleNamespace()
    return Probing(provider, axes, Evidence.NATIVE, "cpu", torch.device("cpu"), torch.float32, part=lambda moment: None)


def wrong(given: Probing) -> list[str]:
    return [fact.name for fact in given.facts if fact.expected != fact.seen]


def unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


def cleaned(x: torch.Tensor) -> torch.Tensor:
    return x.nan_to_num(nan=0.0, posinf=INF, neginf=-INF)


def all_nan_if_bad(x: torch.Tensor) -> torch.Tensor:
    return x if bool(torch.isfinite(x).all()) else torch.full_like(x, NAN)


def neighbour_too(x: torch.Tensor) -> torch.Tensor:
    """What is bad in a row is bad in the row after it."""
    return torch.where(torch.isfinite(x.roll(1, 0)), x, x.roll(1, 0))


def all_nan_if_zero(x: torch.Tensor) -> torch.Tensor:
    return x if bool(x.any()) else torch.full_like(x, NAN)


def stack(*, of_gradient: Change = unchanged, of_weight: Change = unchanged) -> Stack:
    """Two plain products; ``of_gradient`` and ``of_weight`` change what the second one reads."""

    class Changed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, y: torch.Tensor) -> torch.Tensor:
            return y.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return of_gradient(gradients[0])

    generator = torch.Generator().manual_seed(0)
    x, first, second = (torch.randn(size, generator=generator) for size in ((64, 48), (32, 48), (48, 32)))
    weights = [first.requires_grad_(True), second.requires_grad_(True)]

    def run(batch: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = Changed.apply(batch @ first.t() @ of_weight(second).t())  # type: ignore[no-untyped-call]
        return y

    return Stack("eager", run, x.requires_grad_(True), weights)


def test_lines_that_are_not_finite() -> None:
    x = torch.zeros(3, 4)
    x[1, 2], x[2, 0] = INF, NAN
    assert (bad_lines(x, 0), bad_lines(x, 1)) == ([1, 2], [0, 2])
    assert bad_lines(torch.zeros(2, 2), 0) == []
    assert beyond([1, 2, 4], [2, 3]) == [1, 4]


@pytest.mark.parametrize(
    ("columns", "block", "bad"),
    [((17,), 1, False), ((17, 18), 1, True), ((17, 31), 16, False), ((17, 32), 16, True), ((17, 15), 16, True)],
)
def test_only_the_block_of_a_line_may_be_bad(columns: tuple[int, ...], block: int, bad: bool) -> None:
    given, tensor = probing(), torch.zeros(4, 64)
    tensor[:, list(columns)] = NAN
    state_lines(given, 1, "it", tensor, 17, nan=True, block=block)
    assert bool(wrong(given)) is bad


def test_a_nan_must_fill_its_line() -> None:
    given, tensor = probing(), torch.zeros(4, 8)
    tensor[2, :7] = NAN
    state_lines(given, 0, "it", tensor, 2, nan=True)
    assert wrong(given) == ["elements of row 2 of it that are NaN"]
    assert given.facts[-1].seen == "7"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_bad_gradient_that_stays_in_its_lines(variant: str) -> None:
    given = probing()
    bad_gradient(given, variant, stack())
    assert wrong(given) == []
    assert len(given.facts) == (4 if variant == "nan" else 2)


@pytest.mark.parametrize(
    ("variant", "change", "count"),
    [
        ("nan", cleaned, 2),
        ("nan", all_nan_if_bad, 2),
        ("infinite", all_nan_if_bad, 2),
        ("infinite", neighbour_too, 1),  # the weight's gradient has one row for both
        ("infinite", torch.nan_to_num, 0),  # it may count as the largest finite number
    ],
)
def test_a_bad_gradient_that_does_not(variant: str, change: Change, count: int) -> None:
    given = probing()
    bad_gradient(given, variant, stack(of_gradient=change))
    assert len(wrong(given)) == count


@pytest.mark.parametrize(
    ("change", "recipe", "count"),
    [
        (unchanged, "float8_current_scaling", 0),
        (cleaned, "float8_current_scaling", 1),
        (all_nan_if_bad, "float8_current_scaling", 1),
        (all_nan_if_bad, "nvfp4_block_scaling", 1),
        (neighbour_too, "mxfp8_block_scaling", 1),
        (neighbour_too, "nvfp4_block_scaling", 0),  # one block of 16 x 16
    ],
)
def test_a_weight_with_nan(change: Change, recipe: str, count: int) -> None:
    given, layers = probing(recipe), stack(of_weight=change)
    before = layers.weights[1].detach().clone()
    nan_weight(given, layers)
    assert len(wrong(given)) == count
    assert torch.equal(layers.weights[1], before)


def test_a_weight_is_mended_after_an_error() -> None:
    layers = stack()

    def fails(batch: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        nan_weight(probing(), Stack("eager", fails, layers.x, layers.weights))
    assert bool(torch.isfinite(layers.weights[1]).all())


@pytest.mark.parametrize(("change", "count"), [(unchanged, 0), (all_nan_if_zero, 3), (torch.ones_like, 3)])
def test_a_gradient_of_zeros(change: Change, count: int) -> None:
    given = probing()
    zero_gradient(given, stack(of_gradient=change))
    assert len(wrong(given)) == count
