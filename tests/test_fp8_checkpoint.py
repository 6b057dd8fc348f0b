"""Checkpointing recomputes in the region, and with the scales, of its forward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

from harness import fp8
from harness.fp8.recipe import RECIPE_CLASSES
from harness.fp8.tap import Product, listening
from tests.support.fp8 import batch, clean_fp8, counted, gradients, layers

__all__ = ["clean_fp8"]
pytestmark = pytest.mark.usefixtures("clean_fp8")

Manager = fp8.FP8GlobalStateManager


def body(model: torch.nn.ModuleList) -> Any:
    def run(x: torch.Tensor) -> torch.Tensor:
        return model[1](torch.relu(model[0](x)))  # type: ignore[no-any-return]

    return run


def program(model: torch.nn.ModuleList, checkpointed: bool) -> Any:
    def forward(x: torch.Tensor, recipe: Any) -> torch.Tensor:
        with fp8.autocast(recipe=recipe):
            if checkpointed:
                return fp8.checkpoint(body(model), x)  # type: ignore[no-any-return]
            return body(model)(x)  # type: ignore[no-any-return]

    return forward


@pytest.mark.parametrize("name", sorted(RECIPE_CLASSES))
def test_gradients_equal_those_without_checkpoint(name: str) -> None:
    plain, x = layers(2), batch()
    checkpointed = copy.deepcopy(plain)
    before = repr(Manager.quantization_state)
    for _ in range(3):
        expected = gradients(program(plain, False), plain, x, RECIPE_CLASSES[name]())
        actual = gradients(program(checkpointed, True), checkpointed, x, RECIPE_CLASSES[name]())
        assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
        assert repr(Manager.quantization_state) == before
    if name == "delayed_scaling":
        for a, b in zip(plain, checkpointed, strict=True):
            assert torch.equal(a.delayed.scale, b.delayed.scale), "exactly one update per step"
            assert torch.equal(a.delayed.history, b.delayed.history)


def test_torchs_own_checkpoint_is_silently_wrong_here() -> None:
    model, x = layers(2), batch()

    def forward(x: torch.Tensor, recipe: Any) -> torch.Tensor:
        with fp8.autocast(recipe=recipe):
            return torch.utils.checkpoint.checkpoint(body(model), x, use_reentrant=False)  # type: ignore[no-any-return]

    expected = gradients(program(model, False), model, x, fp8.Float8CurrentScaling())
    actual = gradients(forward, model, x, fp8.Float8CurrentScaling())
    assert torch.equal(actual[0], expected[0])
    assert not all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


def test_the_tap_tells_recompute_from_forward() -> None:
    model, x = layers(2), batch()
    products: list[Product] = []
    with listening(products.append):
        gradients(program(model, True), model, x, fp8.Float8CurrentScaling())
    assert [p.phase for p in products if p.product == "fprop"] == ["forward", "forward", "recompute", "recompute"]
    assert {p.key for p in products} == {fp8.Float8CurrentScaling().key}


def test_a_second_backward_recomputes_with_the_same_scales() -> None:
    model, x = layers(2), batch()
    y = program(model, True)(x, fp8.DelayedScaling())
    first = torch.autograd.grad(y.sum(), model[0].weight, retain_graph=True)[0]
    for layer in model:
        layer.delayed.scale[2] = 1.0
    assert torch.equal(first, torch.autograd.grad(y.sum(), model[0].weight)[0])


def test_checkpoints_nest() -> None:
    model, x = layers(2), batch()

    def nested(x: torch.Tensor) -> torch.Tensor:
        return fp8.checkpoint(body(model), x) + x  # type: ignore[no-any-return]

    def forward(x: torch.Tensor) -> torch.Tensor:
        with fp8.autocast(recipe=fp8.DelayedScaling()):
            return fp8.checkpoint(nested, x)  # type: ignore[no-any-return]

    gradients(forward, model, x)
    assert Manager.quantization_state.fp8_tensors_recompute_buffer == {}
    assert model[0].delayed.history[-1, 0].item() == x.abs().amax().item()


def test_an_error_in_the_body_leaves_clean_state() -> None:
    before = repr(Manager.quantization_state)

    def fails(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("body")

    with pytest.raises(KeyError), fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        fp8.checkpoint(fails, batch())
    assert repr(Manager.quantization_state) == before


def test_an_error_in_the_recompute_leaves_clean_state() -> None:
    before = repr(Manager.quantization_state)
    model, x, calls = layers(1), batch(), []

    def fails_the_second_time(x: torch.Tensor) -> torch.Tensor:
        calls.append(Manager.is_fp8_enabled())
        if len(calls) == 2:
            raise KeyError("recompute")
        return model[0](x)  # type: ignore[no-any-return]

    with fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        y = fp8.checkpoint(fails_the_second_time, x)
    with pytest.raises(KeyError):
        y.sum().backward()
    assert calls == [True, True]
    assert repr(Manager.quantization_state) == before


def test_compiled_equals_eager() -> None:
    model, x = layers(2), batch()
    compiled, counter = counted(program(model, True))
    expected = gradients(program(model, False), model, x, fp8.Float8CurrentScaling())
    actual = gradients(compiled, model, x, fp8.Float8CurrentScaling())
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    assert counter.frame_count == 1


def test_reentrant_is_refused() -> None:
    with pytest.raises(ValueError, match="non-reentrant"):
        fp8.checkpoint(torch.relu, batch(), use_reentrant=True)
