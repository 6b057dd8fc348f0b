"""harness.faults.products: what a fault of single products gets, and what tap and program see of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from harness.faults.products import Given, Multiply, kernel_fault, product_fault, replaced, result_fault
from harness.fp8 import ops, tap
from harness.fp8.key import RecipeKey
from harness.fp8.recipe import RECIPE_CLASSES, make_recipe

Apply = Callable[[Any], AbstractContextManager[Any]]


def run(apply: Apply, recipe: str = "float8_rowwise_scaling") -> tuple[torch.Tensor, list[tap.Product]]:
    """One forward product of 32 x 32 matrices under the fault, and what the tap got of it."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(32, 32, generator=generator).to(torch.bfloat16) for _ in range(2))
    seen: list[tap.Product] = []
    with apply(None), tap.listening(seen.append):
        output: torch.Tensor = torch.ops.fp8ref.linear(x, weight, None, None, RecipeKey(make_recipe(recipe, {}).key))
    return output, seen


def unchanged(given: Given, multiply: Multiply) -> Any:
    return multiply(given)


def halved(given: Given) -> Given:
    return dataclasses.replace(given, a=dataclasses.replace(given.a, scale=given.a.scale / 2))


def test_a_change_of_nothing_changes_nothing() -> None:
    multiply = ops.multiply
    output, (product,) = run(product_fault(unchanged))
    assert torch.equal(product.output, output)
    assert ops.multiply is multiply


def test_a_kernel_multiplies_something_else_than_the_tap_reports() -> None:
    good, (wanted,) = run(product_fault(unchanged))
    output, (product,) = run(kernel_fault(halved))
    assert torch.equal(output, good / 2)
    assert torch.equal(product.output, output)
    assert torch.equal(product.a.scale, wanted.a.scale)


def test_what_a_kernel_stores_is_what_tap_and_program_get() -> None:
    good, _ = run(product_fault(unchanged))
    emit = tap.emit
    output, (product,) = run(result_fault(lambda given, result: result * 2))
    assert torch.equal(output, good * 2)
    assert torch.equal(product.output, output)
    assert tap.emit is emit


def test_a_replaced_result_is_what_tap_and_program_get() -> None:
    def zeros(given: Given, multiply: Multiply) -> Any:
        return replaced(given, multiply, torch.zeros(32, 32, dtype=given.out_dtype))

    output, (product,) = run(product_fault(zeros))
    assert not output.any()
    assert not product.output.any()


def test_what_is_shown_without_a_kernel_is_one_record() -> None:
    output, (product,) = run(product_fault(lambda given, _: given.show(given.high_precision())))
    assert product.product == "fprop"
    assert torch.equal(product.output, output)


# Block scaling takes multiples of 128, delayed scaling a scale.
@pytest.mark.parametrize("recipe", sorted(set(RECIPE_CLASSES) - {"delayed_scaling", "float8_block_scaling"}))
def test_values_are_those_that_a_good_kernel_multiplies(recipe: str) -> None:
    exact: list[torch.Tensor] = []

    def look(given: Given, multiply: Multiply) -> Any:
        a, b = given.values()
        exact.append(a @ b.t())
        return multiply(given)

    output, _ = run(product_fault(look), recipe)
    torch.testing.assert_close(output.double(), exact[0], rtol=2**-8, atol=1e-4)
