"""harness.judge.oracle_kernels: a kernel's bound goes on through activations, as far as they let it, and no further."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch.nn.functional import gelu, mish, rms_norm, sigmoid, silu, softplus, tanh

from harness.judge.bounds import HOPPER
from harness.judge.formats import precision_of
from harness.judge.oracle_engine import RunEngine
from harness.judge.oracle_kernels import behind, forward_kernel, gradient_kernel
from harness.judge.oracle_provider import OracleProvider
from harness.judge.oracle_sites import Activation, Behind, ProductRun
from harness.types import Spec

BF16 = precision_of(torch.bfloat16)
RECIPE = Spec("float8_current_scaling")
SMOOTH = (gelu, silu, mish, tanh, sigmoid, softplus)


def hopper(product: ProductRun) -> torch.Tensor:
    return product.kernel_bound(HOPPER, BF16)


def plain(y: torch.Tensor) -> torch.Tensor:
    return y


@dataclass(frozen=True)
class Ran:
    """Two layers after backward; ``gradient``: what backward began with."""

    engine: RunEngine
    gradient: torch.Tensor

    def bound(self, index: int, g: torch.Tensor | None = None) -> torch.Tensor | None:
        site = self.engine.sites[index]
        assert site.grad_output is not None
        wanted = site.grad_output if g is None else g
        return gradient_kernel(self.engine.sites, index, wanted, self.engine.ends, hopper, BF16)


def ran(between: Activation, last: Activation = plain) -> Ran:
    """Terms of the second's dgrad and of the first's fprop are large and cancel."""
    provider = OracleProvider(torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    first, second = (
        provider.linear(64, 64, bias=True, dtype=torch.bfloat16, device=torch.device("cpu")) for _ in range(2)
    )
    with torch.no_grad():
        for layer in (first, second):
            layer.weight.copy_(torch.randn(64, 64, generator=generator, dtype=torch.float64) / 8)
        second.weight[:2] = 64.0
        first.weight[:, :2] = 8.0
    provider.begin_step()
    x = torch.randn(32, 64, generator=generator, dtype=torch.float64)
    x[:, 0], x[:, 1] = 8.0, -8.0
    with provider.autocast(enabled=True, recipe=provider.recipe(RECIPE)):
        y = last(second(between(first(x.requires_grad_()))))
    grad = torch.randn(32, 64, generator=generator, dtype=torch.float64)
    grad[:, 0], grad[:, 1] = 64.0, -64.0
    with provider.backward_pass(y, grad):
        y.backward(grad)
    return Ran(provider.run, grad)


def slope_of(between: Activation, y: torch.Tensor) -> torch.Tensor:
    at = y.clone().requires_grad_()
    (slope,) = torch.autograd.grad(between(at).sum(), at)
    return slope


@pytest.mark.parametrize("between", [plain, torch.relu, *SMOOTH])
def test_a_dgrad_s_kernel_moves_the_gradient_behind_it_by_the_slope(between: Activation) -> None:
    run = ran(between)
    first, second = run.engine.sites
    assert second.behind is not None
    assert second.behind.site == first.index
    bound = run.bound(0)
    assert bound is not None
    kernel = second.products["dgrad"].kernel_bound(HOPPER, BF16)
    assert bool((bound >= slope_of(between, first.y).abs() * kernel * 0.999).all())


@pytest.mark.parametrize("last", SMOOTH)
def test_an_fprop_s_kernel_moves_the_slope_and_with_it_a_large_gradient(last: Activation) -> None:
    run = ran(plain, last)
    second = run.engine.sites[1]
    assert run.engine.ends is not None
    bound = run.bound(1)
    assert bound is not None
    moved = second.products["fprop"].kernel_bound(HOPPER, BF16)
    for d in (moved, -moved):
        off = (slope_of(last, second.y + d) - slope_of(last, second.y)).abs() * run.gradient.abs()
        assert bool((bound >= off * 0.9).all())
    assert second.grad_output is not None
    # Where the curve is flat nothing of it comes through.
    flat = second.y.abs() > 60
    if last in (gelu, silu, tanh, sigmoid) and bool(flat.any()):
        assert bool((bound <= 0.04 * second.grad_output.abs() + 1e-6)[flat].all())


@pytest.mark.parametrize("between", SMOOTH)
def test_an_input_moves_by_what_the_activation_makes_of_its_kernel(between: Activation) -> None:
    first, second = ran(between).engine.sites
    bound = forward_kernel([first], second.x, second.behind, hopper, BF16)
    assert bound is not None
    moved = first.products["fprop"].kernel_bound(HOPPER, BF16)
    assert bool((bound >= (between(first.y + moved) - between(first.y)).abs() * 0.999).all())
    assert bool((bound <= 1.2 * moved + 0.1 * first.y.abs() + 0.1).all())


def test_what_is_more_than_an_activation_carries_nothing() -> None:
    others: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda y: rms_norm(y, (64,)),
        lambda y: y * 3.0,
        lambda y: y + y.roll(1),
    ]
    for between in others:
        run = ran(between)
        second = run.engine.sites[1]
        assert second.behind is None
        assert run.bound(0) is None
        assert forward_kernel(run.engine.sites, second.x, second.behind, hopper, BF16) is None


def test_the_bound_does_not_grow_with_what_else_flows_into_the_gradient() -> None:
    run = ran(gelu)
    own, grad = run.bound(0), run.engine.sites[0].grad_output
    assert own is not None
    assert grad is not None
    other = run.bound(0, grad + 1000.0)
    assert other is not None
    assert bool((other - own <= 0.04 * 1001.0).all())  # the roundings of its size, and no more


def test_several_activations_are_taken_in_order() -> None:
    second = ran(lambda y: tanh(gelu(y))).engine.sites[1]
    assert second.behind == Behind(0, (gelu, tanh))


def test_a_leaf_and_another_functions_result_are_behind_nothing() -> None:
    assert behind(torch.ones(2)) is None
    assert behind(torch.ones(2, requires_grad=True)) is None
    assert behind(torch.exp(torch.ones(2, requires_grad=True))) is None
