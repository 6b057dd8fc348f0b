"""The microbatch case: weights change so much that a kept one can't pass for a new one, and who can run it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cases import CASES
from cases.microbatch import IN_OTHER, STEPS, WINDOW, asks, change_weights, unavailable
from cases.recipe_fields import with_other
from harness.fp8.weight_cache import WeightCache
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Spec


def test_weights_change_and_biases_do_not() -> None:
    model = torch.nn.Linear(4, 4)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    change_weights(model)
    assert torch.equal(model.weight, weight * -1.25)
    assert torch.equal(model.bias, bias)


def test_the_judged_steps_quantise_changed_weights_and_end_on_kept_ones() -> None:
    assert WINDOW < STEPS
    assert (STEPS - 1) % WINDOW != 0


def test_who_can_run_it() -> None:
    axes = Axes("microbatch", Spec("reference"), Spec("float8_current_scaling"), variant="flag")
    assert unavailable(ReferenceProvider(), axes, "cpu") == ""
    reason = unavailable(SimpleNamespace(name="bare"), axes, "cpu")  # type: ignore[arg-type]
    assert reason.startswith("bare has no cached_linear")


OTHER = Axes("microbatch", Spec("reference"), Spec("float8_current_scaling"), variant="other_recipe")


def test_the_other_recipe_keeps_what_its_first_call_quantised() -> None:
    assert IN_OTHER[:1] + IN_OTHER[-2:] == (False, True, True)


@pytest.mark.parametrize("name", CASES["microbatch"].recipes)
def test_the_field_that_is_changed_gives_a_weight_other_bytes(name: str) -> None:
    provider = ReferenceProvider()
    told = asks(provider, Axes("microbatch", Spec("reference"), Spec(name), variant="other_recipe"), "cpu")
    weight = torch.randn(128, 256, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0))
    one, other = (WeightCache(provider.recipe(s), weight) for s in (Spec(name), with_other(Spec(name), told["field"])))
    assert not all(map(torch.equal, one.tensors, other.tensors))
    assert not one.fits(provider.recipe(with_other(Spec(name), told["field"])), weight)


def test_a_provider_without_another_recipe_is_skipped_there_alone() -> None:
    provider = ReferenceProvider()
    make = provider.recipe

    def plain(spec: Spec) -> object:
        if set(spec.as_dict()) - {"fp8_format"}:
            raise ValueError("one format or the other, and nothing else")
        return make(spec)

    provider.recipe = plain  # type: ignore[method-assign, assignment]
    assert "in a field that weights depend on" in unavailable(provider, OTHER, "cpu")
    flag = Axes("microbatch", Spec("reference"), Spec("float8_current_scaling"), variant="flag")
    assert unavailable(provider, flag, "cpu") == ""
    assert asks(provider, flag, "cpu") == {}
