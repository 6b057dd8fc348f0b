"""Weights kept over micro-batches: really kept, refreshed when asked for, in eager and compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.library import opcheck

from harness import fp8
from harness.fp8 import tap
from harness.fp8.key import RecipeKey
from harness.fp8.tap import Product, listening
from harness.fp8.weight_cache import WeightCache
from tests.support.fp8 import STATELESS, batch, clean_fp8, counted, gradients, layers

__all__ = ["clean_fp8"]
pytestmark = pytest.mark.usefixtures("clean_fp8")

Manager = fp8.FP8GlobalStateManager


def program(layer: torch.nn.Module, graph: bool = False) -> Callable[..., torch.Tensor]:
    def forward(x: torch.Tensor, recipe: Any, first: bool | None) -> torch.Tensor:
        with fp8.autocast(recipe=recipe, _graph=graph):
            return layer(x, is_first_microbatch=first)  # type: ignore[no-any-return]

    return forward


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("cls", STATELESS)
@pytest.mark.parametrize("compile_it", [False, True])
def test_kept_and_fresh_weights_give_the_same_bits(cls: Any, compile_it: bool) -> None:
    layer, x = layers(1)[0], batch()
    layer.prepare_weight_cache(cls())
    run = counted(program(layer))[0] if compile_it else program(layer)
    expected = gradients(program(layer), layer, x, cls(), None)
    for first in (True, False, False):
        assert same(gradients(run, layer, x, cls(), first), expected)


@pytest.mark.parametrize("compile_it", [False, True])
def test_the_weight_is_kept_until_the_next_first_microbatch(compile_it: bool) -> None:
    layer, x = layers(1)[0], batch()
    recipe = fp8.MXFP8BlockScaling()
    layer.prepare_weight_cache(recipe)
    compiled, counter = counted(program(layer))
    run = compiled if compile_it else program(layer)
    old = run(x, recipe, True)
    with torch.no_grad():
        layer.weight.mul_(-1.5)
    assert torch.equal(run(x, recipe, False), old)
    new = run(x, recipe, True)
    assert torch.equal(new, program(layer)(x, recipe, None))
    assert not torch.equal(new, old)
    assert torch.equal(run(x, recipe, False), new)
    if compile_it:
        assert counter.frame_count == 2, "one graph for each value of is_first_microbatch"


@pytest.mark.parametrize("compile_it", [False, True])
def test_the_skip_tensor_decides_at_run_time_under_graph_capture(compile_it: bool) -> None:
    layer, x = layers(1)[0], batch()
    recipe = fp8.NVFP4BlockScaling()
    layer.prepare_weight_cache(recipe)
    compiled, counter = counted(program(layer, graph=True))
    run = compiled if compile_it else program(layer, graph=True)
    Manager.set_skip_fp8_weight_update_tensor(False, "cpu")
    old = run(x, recipe, False)
    with torch.no_grad():
        layer.weight.mul_(-1.5)
    Manager.set_skip_fp8_weight_update_tensor(True, "cpu")
    assert torch.equal(run(x, recipe, False), old)
    Manager.set_skip_fp8_weight_update_tensor(False, "cpu")
    new = run(x, recipe, False)
    assert torch.equal(new, program(layer)(x, recipe, None))
    assert not torch.equal(new, old)
    if compile_it:
        assert counter.frame_count == 1


def test_a_reset_clears_the_skip_tensor_that_a_graph_holds() -> None:
    layer, x = layers(1)[0], batch()
    recipe = fp8.Float8CurrentScaling()
    layer.prepare_weight_cache(recipe)
    compiled, counter = counted(program(layer, graph=True))
    Manager.set_skip_fp8_weight_update_tensor(True, "cpu")
    compiled(x, recipe, False)
    with torch.no_grad():
        layer.weight.mul_(-1.5)
    Manager.reset()
    assert torch.equal(compiled(x, recipe, False), program(layer)(x, recipe, None)), "the graph read a dead tensor"
    assert counter.frame_count == 1


def test_the_first_use_may_be_a_later_microbatch_without_gradients() -> None:
    layer, x = layers(1)[0], batch()
    recipe = fp8.Float8BlockScaling()
    with torch.inference_mode():
        y = program(layer)(x.detach(), recipe, False)
    assert torch.equal(y, program(layer)(x, recipe, None))
    assert torch.equal(program(layer)(x, recipe, True), y)


def test_another_recipe_is_kept_anew() -> None:
    layer, x = layers(1)[0], batch()
    for recipe in (fp8.Float8CurrentScaling(), fp8.Float8RowwiseScaling(), fp8.Float8CurrentScaling()):
        assert torch.equal(program(layer)(x, recipe, False), program(layer)(x, recipe, None))


def test_the_tap_sees_the_kept_bytes() -> None:
    layer, x = layers(1)[0], batch()
    recipe = fp8.Float8CurrentScaling()
    program(layer)(x, recipe, True)
    kept: list[Product] = []
    fresh: list[Product] = []
    with torch.no_grad():
        layer.weight.mul_(-1.0)
        with listening(kept.append):
            program(layer)(x, recipe, False)
        with listening(fresh.append):
            program(layer)(x, recipe, None)
    bytes_kept, bytes_fresh = (p[0].b.data.view(torch.uint8) for p in (kept, fresh))
    assert torch.equal(bytes_kept, bytes_fresh ^ 0x80)


def test_compiled_code_without_prepared_tensors_says_what_to_call() -> None:
    for fullgraph in (True, False):
        compiled, _ = counted(program(layers(1)[0]), fullgraph=fullgraph)
        with pytest.raises(Exception, match="call prepare_weight_cache"):
            compiled(batch(), fp8.Float8CurrentScaling(), True)


def test_delayed_scaling_keeps_no_weights() -> None:
    layer = layers(1)[0]
    with pytest.raises(ValueError, match="not kept under DelayedScaling"):
        program(layer)(batch(), fp8.DelayedScaling(), True)
    assert layer.delayed is None


def test_outside_a_region_the_flag_changes_nothing() -> None:
    layer, x = layers(1)[0], batch()
    assert torch.equal(layer(x, is_first_microbatch=True), layer(x))
    assert layer.weight_cache is None


def test_an_empty_batch() -> None:
    layer = layers(1)[0]
    x = torch.empty(0, 128, dtype=torch.bfloat16, requires_grad=True)
    y = program(layer)(x, fp8.Float8CurrentScaling(), True)
    y.sum().backward()
    assert y.shape == (0, 128)
    assert x.grad is not None


@pytest.mark.parametrize("cls", STATELESS)
def test_opcheck(cls: Any) -> None:
    weight = torch.randn(128, 256, dtype=torch.bfloat16, requires_grad=True)
    x = torch.randn(128, 256, dtype=torch.bfloat16, requires_grad=True)
    kept, key = WeightCache(cls(), weight).tensors, RecipeKey(cls().key)
    for name, arguments in {
        "linear_cached": (x, weight, kept, key),
        "dgrad_cached": (torch.randn(128, 128, dtype=torch.bfloat16), weight.detach(), kept, key),
        "refresh_weight": (weight.detach(), kept, torch.zeros(1), key),
    }.items():
        result = opcheck(getattr(torch.ops.fp8ref, name).default, arguments)
        assert set(result.values()) == {"SUCCESS"}, (name, result)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("compile_it", [False, True])
def test_the_tap_shows_what_was_quantised_not_what_the_weight_is_now(compile_it: bool, graph: bool) -> None:
    layer, x = layers(1)[0], batch()
    recipe = fp8.Float8CurrentScaling()
    layer.prepare_weight_cache(recipe)
    run = counted(program(layer, graph))[0] if compile_it else program(layer, graph)
    seen: list[Product] = []
    with listening(seen.append):
        run(x, recipe, True)
        old = layer.weight.detach().clone()
        with torch.no_grad():
            layer.weight.mul_(-1.25)
        Manager.set_skip_fp8_weight_update_tensor(True, "cpu")
        run(x, recipe, False)
        Manager.set_skip_fp8_weight_update_tensor(False, "cpu")
        run(x, recipe, True)
    assert [torch.equal(p.b.source, old) for p in seen] == [True, True, False]
    assert torch.equal(seen[2].b.source, layer.weight)
    assert tap._KEPT == {}, "nothing is kept once nobody listens"


def test_the_tap_shows_what_was_quantised_when_a_kept_weight_was_made() -> None:
    layer, x = layers(1)[0], batch()
    run, seen, recipes = program(layer), list[Product](), (fp8.Float8CurrentScaling(), fp8.MXFP8BlockScaling())
    with listening(seen.append):
        run(x, recipes[0], True)
        layer.weight.data.mul_(-1.25)
        made = layer.weight.detach().clone()
        run(x, recipes[1], False)  # no first micro-batch, but nothing is kept for this recipe
        layer.weight.data.mul_(-1.25)
        run(x, recipes[1], False)
    assert [torch.equal(product.b.source, made) for product in seen] == [False, True, True]
