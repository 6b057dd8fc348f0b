"""Every operator passes ``torch.library.opcheck``."""

from __future__ import annotations

import pytest
import torch
from torch.library import opcheck

from harness.fp8.key import RecipeKey
from harness.fp8.ops import PRODUCT_OPS
from harness.fp8.quantizer import INPUT, WEIGHT, quantize
from harness.fp8.recipe import RECIPE_CLASSES

M, K, N = 128, 256, 128


def scale_for(name: str) -> torch.Tensor | None:
    return torch.tensor([2.0]) if name == "delayed_scaling" else None


def passes(name: str, arguments: tuple[object, ...], **options: object) -> bool:
    result = opcheck(getattr(torch.ops.fp8ref, name).default, arguments, **options)  # type: ignore[arg-type]
    return set(result.values()) == {"SUCCESS"}


@pytest.mark.parametrize("recipe", sorted(RECIPE_CLASSES))
def test_linear(recipe: str) -> None:
    # Delayed scaling has its own backward (harness.fp8.linear): its operator never sees a tensor that wants a gradient.
    wants = recipe != "delayed_scaling"
    x = torch.randn(M, K, dtype=torch.bfloat16, requires_grad=wants)
    weight = torch.randn(N, K, dtype=torch.bfloat16, requires_grad=wants)
    scale, key = scale_for(recipe), RecipeKey(RECIPE_CLASSES[recipe]().key)
    assert passes("linear", (x, weight, scale, scale, key))


@pytest.mark.parametrize("recipe", sorted(RECIPE_CLASSES))
def test_dgrad_and_wgrad(recipe: str) -> None:
    x, weight, grad = (torch.randn(shape, dtype=torch.bfloat16) for shape in ((M, K), (N, K), (M, N)))
    scale, key = scale_for(recipe), RecipeKey(RECIPE_CLASSES[recipe]().key)
    assert passes("dgrad", (grad, weight, scale, scale, key))
    assert passes("wgrad", (grad, x, weight, scale, scale, key))


@pytest.mark.parametrize("recipe", sorted(RECIPE_CLASSES))
def test_products(recipe: str) -> None:
    """All of opcheck but its schema test, which compares inputs by ``allclose``: float8 has none. Here bytes are."""
    made = RECIPE_CLASSES[recipe]()
    a = quantize(torch.randn(M, K), INPUT, made, scale_for(recipe))
    b = quantize(torch.randn(N, K), WEIGHT, made, scale_for(recipe))
    tensors = [a.data, b.data, a.scale, b.scale]
    if a.global_scale is not None and b.global_scale is not None:
        tensors += [a.global_scale, b.global_scale]
    before = [tensor.clone() for tensor in tensors]
    tests = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    assert passes(PRODUCT_OPS[recipe], (*tensors, torch.bfloat16), test_utils=tests)
    for tensor, copy in zip(tensors, before, strict=True):
        assert torch.equal(tensor.view(torch.uint8), copy.view(torch.uint8))


def test_keys_are_equal_by_value_and_rebuild_from_their_text() -> None:
    key = RecipeKey("a(b=1)")
    text, names = key.__fx_repr__()
    assert key == RecipeKey("a(b=1)")
    assert key != RecipeKey("a(b=2)")
    assert key != "a(b=1)"
    assert eval(text, dict(names)) == key
