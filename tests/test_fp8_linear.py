"""ToyLinear in eager mode: numerics, shapes, gradients asked for and not, shape rules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from harness import fp8
from harness.fp8.recipe import RECIPE_CLASSES
from harness.fp8.tap import Product, listening
from tests.support.fp8 import batch, clean_fp8, layers

__all__ = ["clean_fp8"]
pytestmark = pytest.mark.usefixtures("clean_fp8")

RECIPES = sorted(RECIPE_CLASSES)


def taken(function: Any, *arguments: Any) -> tuple[Any, list[Product]]:
    products: list[Product] = []
    with listening(products.append):
        result = function(*arguments)
    return result, products


def in_region(recipe: Any, layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with fp8.autocast(recipe=recipe):
        return layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("enabled", [None, False])
def test_outside_and_in_a_disabled_region_it_is_plain_linear(enabled: bool | None) -> None:
    layer, x = layers(1)[0], batch()
    if enabled is None:
        y, products = taken(layer, x)
    else:
        with fp8.autocast(enabled=False, recipe=fp8.MXFP8BlockScaling()):
            y, products = taken(layer, x)
    assert torch.equal(y, functional.linear(x, layer.weight, layer.bias))
    assert products == []


@pytest.mark.parametrize("name", RECIPES)
def test_close_to_high_precision_but_not_equal(name: str) -> None:
    layer, x = layers(1)[0], batch()
    x.data.mul_(0.5)
    y = in_region(RECIPE_CLASSES[name](), layer, x).double()
    exact = functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    error = ((y - exact).norm() / exact.norm()).item()
    assert 0.005 < error < (0.25 if name == "nvfp4_block_scaling" else 0.08)


@pytest.mark.parametrize("name", RECIPES)
def test_three_products_with_the_formats_of_the_recipe(name: str) -> None:
    layer, x = layers(1)[0], batch()
    y, forward = taken(in_region, RECIPE_CLASSES[name](), layer, x)
    _, backward = taken(y.sum().backward)
    assert [p.product for p in forward + backward] == ["fprop", "dgrad", "wgrad"]
    assert [p.phase for p in forward + backward] == ["forward", "backward", "backward"]
    assert [(p.a.role, p.b.role) for p in forward + backward] == [
        ("input", "weight"),
        ("grad_output", "weight"),
        ("grad_output", "input"),
    ]
    gradient = {"nvfp4_block_scaling": "e2m1", "delayed_scaling": "e5m2", "float8_current_scaling": "e5m2"}
    assert backward[0].a.format == gradient.get(name, "e4m3")
    assert {p.weight_ptr for p in forward + backward} == {layer.weight.data_ptr()}
    assert {p.key for p in forward + backward} == {RECIPE_CLASSES[name]().key}


def test_operands_are_oriented_reduction_last() -> None:
    layer = fp8.ToyLinear(64, 32, bias=False)
    x = torch.randn(128, 64, dtype=torch.bfloat16, requires_grad=True)
    y, (fprop,) = taken(in_region, fp8.Float8CurrentScaling(), layer, x)
    grad = torch.randn_like(y)
    _, (dgrad, wgrad) = taken(y.backward, grad)
    assert torch.equal(fprop.a.source, x)
    assert torch.equal(fprop.b.source, layer.weight)
    assert torch.equal(dgrad.a.source, grad)
    assert torch.equal(dgrad.b.source, layer.weight.t())
    assert torch.equal(wgrad.a.source, grad.t())
    assert torch.equal(wgrad.b.source, x.t())
    assert torch.equal(fprop.output, y)
    assert torch.equal(dgrad.output, x.grad)
    assert torch.equal(wgrad.output, layer.weight.grad)


@pytest.mark.parametrize(("wants_x", "wants_weight", "products"), [(True, False, ["dgrad"]), (False, True, ["wgrad"])])
def test_only_gradients_that_are_wanted_are_computed(wants_x: bool, wants_weight: bool, products: list[str]) -> None:
    layer = fp8.ToyLinear(128, 128, bias=False)
    layer.weight.requires_grad_(wants_weight)
    for recipe in (fp8.Float8CurrentScaling(), fp8.DelayedScaling()):
        x = batch().requires_grad_(wants_x)
        y = in_region(recipe, layer, x)
        assert [p.product for p in taken(y.sum().backward)[1]] == products


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", RECIPES)
def test_without_gradients_the_same_output(name: str, mode: Any) -> None:
    layer, x = layers(1)[0], batch()
    with mode():
        y = in_region(RECIPE_CLASSES[name](), layer, x.detach())
    assert not y.requires_grad
    assert torch.equal(y, in_region(RECIPE_CLASSES[name](), layer, x))


@pytest.mark.parametrize("name", RECIPES)
def test_an_empty_batch_gives_empty_output_and_zero_weight_gradient(name: str) -> None:
    layer = layers(1)[0]
    x = torch.empty(0, 128, dtype=torch.bfloat16, requires_grad=True)
    y = in_region(RECIPE_CLASSES[name](), layer, x)
    assert y.shape == (0, 128)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (0, 128)
    assert torch.equal(layer.weight.grad, torch.zeros_like(layer.weight))


def test_leading_dimensions_are_rows() -> None:
    layer = layers(1)[0]
    x = torch.randn(2, 4, 16, 128, dtype=torch.bfloat16)
    y = in_region(fp8.Float8RowwiseScaling(), layer, x)
    assert y.shape == (2, 4, 16, 128)
    assert torch.equal(y.reshape(128, 128), in_region(fp8.Float8RowwiseScaling(), layer, x.reshape(128, 128)))
    column_major = torch.randn(128, 128, dtype=torch.bfloat16).t()
    expected = in_region(fp8.Float8RowwiseScaling(), layer, column_major.contiguous())
    assert torch.equal(in_region(fp8.Float8RowwiseScaling(), layer, column_major), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", RECIPES)
def test_outputs_and_gradients_have_the_modules_dtype(name: str, dtype: torch.dtype) -> None:
    layer, x = layers(1, dtype=dtype)[0], batch(dtype=dtype)
    y = in_region(RECIPE_CLASSES[name](), layer, x)
    y.sum().backward()
    assert {y.dtype, x.grad.dtype, layer.weight.grad.dtype, layer.bias.grad.dtype} == {dtype}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("recipe", "rows", "inputs", "outputs", "text"),
    [
        (fp8.Float8CurrentScaling(), 24, 128, 128, "batch rows is 24, .* multiple of 16"),
        (fp8.DelayedScaling(), 128, 120, 128, "in_features is 120, .* multiple of 16"),
        (fp8.Float8RowwiseScaling(), 128, 128, 40, "out_features is 40, .* multiple of 16"),
        (fp8.MXFP8BlockScaling(), 48, 128, 128, "batch rows is 48, .* multiple of 32"),
        (fp8.Float8BlockScaling(), 128, 192, 128, "in_features is 192, .* multiple of 128"),
        (fp8.NVFP4BlockScaling(), 128, 128, 8, "out_features is 8, .* multiple of 16"),
    ],
)
def test_a_shape_that_no_kernel_takes_is_named(recipe: Any, rows: int, inputs: int, outputs: int, text: str) -> None:
    layer = fp8.ToyLinear(inputs, outputs)
    x = torch.randn(rows, inputs, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=text):
        in_region(recipe, layer, x)
    assert layer.delayed is None, "an amax was recorded before the check"
    assert fp8.FP8GlobalStateManager.quantization_state.global_amax_buffer == {}
    in_region(recipe, fp8.ToyLinear(128, 128), batch())


def test_an_input_of_another_dtype_or_width_is_named() -> None:
    layer = layers(1)[0]
    with pytest.raises(ValueError, match=r"input is torch.float32, but the weight is torch.bfloat16"):
        in_region(fp8.Float8CurrentScaling(), layer, torch.randn(16, 128))
    with pytest.raises(ValueError, match="last dimension is 64, but in_features is 128"):
        in_region(fp8.Float8CurrentScaling(), layer, torch.randn(16, 64, dtype=torch.bfloat16))


def test_repr_and_no_bias() -> None:
    assert "in_features=128, out_features=64, bias=False" in repr(fp8.ToyLinear(128, 64, bias=False))
    y = in_region(fp8.Float8CurrentScaling(), fp8.ToyLinear(128, 64, bias=False), batch())
    assert y.shape == (128, 64)


def test_a_backward_outside_and_in_another_region_uses_the_forwards_recipe() -> None:
    layer, x = layers(1)[0], batch()
    y = in_region(fp8.MXFP8BlockScaling(), layer, x)
    with fp8.autocast(recipe=fp8.Float8BlockScaling()):
        _, products = taken(y.sum().backward)
    assert {p.key for p in products} == {fp8.MXFP8BlockScaling().key}


def test_retained_graphs_give_the_same_gradient_twice() -> None:
    layer, x = layers(1)[0], batch()
    y = in_region(fp8.Float8CurrentScaling(), layer, x)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y.sum(), x)[0])
