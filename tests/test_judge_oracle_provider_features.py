"""What the oracle offers beyond the protocol, by definition: kept weights, checkpoints, passes, inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness.judge.oracle_provider import OracleProvider
from harness.types import Spec

CURRENT, ROWWISE = Spec("float8_current_scaling"), Spec("float8_rowwise_scaling")
DELAYED = Spec("delayed_scaling", (("amax_history_len", 4),))
CPU = torch.device("cpu")


def made() -> tuple[OracleProvider, Any]:
    provider = OracleProvider(torch.bfloat16)
    layer: Any = provider.linear(32, 16, bias=False, dtype=torch.bfloat16, device=CPU)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(16, 32, generator=torch.Generator().manual_seed(0)).bfloat16())
    provider.begin_step()
    return provider, layer


def batch() -> torch.Tensor:
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    return x.double().requires_grad_()


def cached(provider: OracleProvider, layer: Any, x: torch.Tensor, first: bool, recipe: Spec = CURRENT) -> torch.Tensor:
    with provider.autocast(enabled=True, recipe=provider.recipe(recipe)):
        return provider.features["cached_linear"](layer, x, first)  # type: ignore[no-any-return]


def plain(provider: OracleProvider, layer: Any, x: torch.Tensor, recipe: Spec = CURRENT) -> torch.Tensor:
    with provider.autocast(enabled=True, recipe=provider.recipe(recipe)):
        return layer(x)  # type: ignore[no-any-return]


def change(layer: Any) -> None:
    with torch.no_grad():
        layer.weight.mul_(-1.25)


def test_a_kept_weight_stays_until_the_next_first_call_and_its_gradient_is_the_weights() -> None:
    provider, layer = made()
    x = batch()
    old = cached(provider, layer, x, True)
    change(layer)
    kept = cached(provider, layer, x, False)
    assert torch.equal(kept, old)
    dx, dw = torch.autograd.grad(kept, [x, layer.weight], torch.ones_like(kept))
    fresh = plain(provider, layer, x)
    fresh_dx, fresh_dw = torch.autograd.grad(fresh, [x, layer.weight], torch.ones_like(fresh))
    assert torch.equal(dw, fresh_dw), "input and output gradient alone make it"
    assert not torch.equal(dx, fresh_dx)
    assert torch.equal(cached(provider, layer, x, True), fresh)


def test_another_recipe_and_another_layer_keep_their_own() -> None:
    provider, layer = made()
    x = batch()
    cached(provider, layer, x, True)
    change(layer)
    assert torch.equal(cached(provider, layer, x, False, ROWWISE), plain(provider, layer, x, ROWWISE))


def test_outside_of_a_region_nothing_is_kept() -> None:
    provider, layer = made()
    x = batch()
    before = provider.features["cached_linear"](layer, x, True)
    change(layer)
    assert not torch.equal(provider.features["cached_linear"](layer, x, False), before)


def test_in_a_capturing_region_the_flag_decides_and_a_reset_clears_it() -> None:
    provider, layer = made()
    x, capture = batch(), provider.features["capturing_autocast"]

    def run() -> torch.Tensor:
        with capture(enabled=True, recipe=provider.recipe(CURRENT)):
            return provider.features["cached_linear"](layer, x, False)  # type: ignore[no-any-return]

    old = run()
    change(layer)
    provider.features["skip_weight_update"](True, CPU)
    assert torch.equal(run(), old)
    provider.forget()
    assert torch.equal(run(), plain(provider, layer, x))


@pytest.mark.parametrize("name", ["checkpoint", "torch_checkpoint"])
def test_a_checkpoint_changes_nothing(name: str) -> None:
    provider, layer = made()
    x = batch()
    with provider.autocast(enabled=True, recipe=provider.recipe(CURRENT)):
        checkpointed = provider.features[name](layer, x)
    assert torch.equal(checkpointed, plain(provider, layer, x))
    assert torch.autograd.grad(checkpointed.sum(), x)[0] is not None


def delayed_scale(provider: OracleProvider, layer: Any, run: Callable[[], object]) -> float:
    """The input's scale after ``run``."""
    run()
    with torch.no_grad():
        plain(provider, layer, batch(), DELAYED)
    scale = provider.run.sites[-1].encode_scales["input"]
    assert scale is not None
    return scale


def test_inference_moves_no_scale_and_training_does() -> None:
    provider, layer = made()
    x = batch()
    with torch.no_grad():
        assert delayed_scale(provider, layer, lambda: plain(provider, layer, x, DELAYED)) == 1.0
    assert delayed_scale(provider, layer, lambda: plain(provider, layer, x, DELAYED)) != 1.0


def test_each_pass_over_a_graph_has_the_gradient_scale_of_the_passes_before_it() -> None:
    provider, layer = made()
    y = plain(provider, layer, batch(), DELAYED)
    scales = []
    for _ in range(2):
        with provider.backward_pass(y, torch.ones_like(y)):
            torch.autograd.grad(y, layer.weight, torch.ones_like(y), retain_graph=True)
        scales.append(provider.run.sites[0].encode_scales["grad_output"])
    assert scales == [1.0, 57344.0]


@pytest.mark.parametrize(
    ("spec", "grad", "moves"), [(DELAYED, True, True), (DELAYED, False, False), (CURRENT, True, False)]
)
def test_a_calibrating_region_computes_without_fp8_and_its_amaxes_are_the_next_scales(
    spec: Spec, grad: bool, moves: bool
) -> None:
    provider, layer = made()
    x = batch()

    def calibrate() -> None:
        with torch.set_grad_enabled(grad), provider.features["calibrating_autocast"](recipe=provider.recipe(spec)):
            y = layer(x)
        assert torch.equal(y, layer(x))
        assert provider.trace == ()

    wanted = float(torch.tensor(448.0) / x.detach().abs().max().float()) if moves else 1.0
    assert delayed_scale(provider, layer, calibrate) == wanted


def test_an_enabled_region_inside_a_calibrating_one_computes_in_fp8() -> None:
    provider, layer = made()
    with provider.features["calibrating_autocast"](recipe=provider.recipe(DELAYED)):
        inside = plain(provider, layer, batch())
    assert torch.equal(inside, plain(provider, layer, batch()))
    assert len(provider.trace) == 2
