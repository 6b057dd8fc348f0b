"""ToyLinear under torch.autocast: dtypes as in Transformer Engine, and operators that it doesn't reach into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness import fp8
from harness.fp8.recipe import RECIPE_CLASSES
from tests.support.fp8 import clean_fp8, counted

__all__ = ["clean_fp8"]
pytestmark = pytest.mark.usefixtures("clean_fp8")


def program(layer: torch.nn.Module) -> Callable[..., torch.Tensor]:
    def forward(x: torch.Tensor, recipe: Any) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16), fp8.autocast(recipe=recipe):
            return layer(x)  # type: ignore[no-any-return]

    return forward


def float32_layer() -> fp8.ToyLinear:
    """Values that bfloat16 holds, so that a layer in bfloat16 has the same."""
    layer = fp8.ToyLinear(128, 128, dtype=torch.float32)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.bfloat16())
    return layer


@pytest.mark.parametrize("name", sorted(RECIPE_CLASSES))
def test_float32_parameters_give_what_a_bfloat16_layer_gives(name: str) -> None:
    layer = float32_layer()
    low = fp8.ToyLinear(128, 128)
    low.load_state_dict(layer.state_dict())
    x = torch.randn(128, 128).bfloat16().float().requires_grad_()
    y = program(layer)(x, RECIPE_CLASSES[name]())
    with fp8.autocast(recipe=RECIPE_CLASSES[name]()):
        expected = low(x.detach().bfloat16())
    assert torch.equal(y, expected)
    grad = torch.randn(128, 128).bfloat16()
    y.backward(grad)
    expected.backward(grad)
    assert {x.grad.dtype, layer.weight.grad.dtype, layer.bias.grad.dtype} == {torch.float32}  # type: ignore[union-attr]
    assert torch.equal(layer.weight.grad.bfloat16(), low.weight.grad)  # type: ignore[union-attr,arg-type]


def test_the_weight_is_quantised_from_its_own_dtype() -> None:
    layer, x = float32_layer(), torch.randn(128, 128).bfloat16().float()
    before = program(layer)(x, fp8.Float8CurrentScaling())
    with torch.no_grad():
        layer.weight.add_(layer.weight.abs().amax() * 2**-10)  # less than bfloat16 resolves, where it is large
    assert not torch.equal(program(layer)(x, fp8.Float8CurrentScaling()), before)


def test_compiled_equals_eager_and_torchs_autocast_is_left_alone() -> None:
    layer = float32_layer()
    compiled, counter = counted(program(layer))
    x = torch.randn(128, 128).requires_grad_()
    assert torch.equal(compiled(x, fp8.MXFP8BlockScaling()), program(layer)(x, fp8.MXFP8BlockScaling()))
    assert counter.frame_count == 1
    assert not torch.is_autocast_enabled("cpu")


def test_without_it_another_dtype_is_still_an_error() -> None:
    with pytest.raises(ValueError, match="but the weight is"), fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        float32_layer()(torch.randn(128, 128).bfloat16())
