"""cases.recipe_switch and cases.recipe_fields: recipes that differ in one field, their keys, changes in place."""

from __future__ import annotations

from typing import Any

import pytest

from cases.recipe_fields import RANDOM, VALUES, others_of, with_fields, with_other
from cases.recipe_switch import _Mutating, asks, keys_differ, unavailable
from harness.plan.recipes import RECIPE_MODELS
from harness.probing import NotAsDocumented
from harness.providers.reference import ReferenceProvider
from harness.types import RECIPES, Axes, Spec

CURRENT = Spec("float8_current_scaling")


def test_every_field_of_every_recipe_has_two_values_the_default_first() -> None:
    assert set(VALUES) == set(RECIPES)
    for name, fields in VALUES.items():
        models = {key: item.default for key, item in RECIPE_MODELS[name].model_fields.items() if key != "name"}
        assert {field: values[0] for field, values in fields.items()} == models
        assert all(usual != other for usual, other in fields.values())


def test_the_other_value_is_never_the_one_that_is_there() -> None:
    assert with_other(CURRENT, "power_2_scale") == Spec(CURRENT.name, (("power_2_scale", True),))
    there = with_other(CURRENT, "power_2_scale")
    assert with_other(there, "power_2_scale") == Spec(CURRENT.name, (("power_2_scale", False),))
    both = with_fields(there, {"amax_epsilon": 0.5})
    assert both.label == "float8_current_scaling(amax_epsilon=0.5,power_2_scale=true)"


@pytest.mark.parametrize("name", RECIPES)
def test_others_are_those_that_the_provider_makes(name: str) -> None:
    found = dict(others_of(ReferenceProvider(), Spec(name), computable=False))
    assert set(found) == set(VALUES[name]) - set(RANDOM)  # the reference does nothing at random, and says so


class Facts:
    """As much of a Probing as the probe uses."""

    def __init__(self, provider: Any) -> None:
        self.provider, self.facts = provider, []

    def fact(self, name: str, expected: object, seen: object) -> None:
        self.facts.append((name, expected, seen))  # type: ignore[attr-defined]


def wrong(provider: Any) -> list[Any]:
    probing: Any = Facts(provider)
    keys_differ(probing)
    assert len(probing.facts) == 3 * len(RECIPES)
    return [fact for fact in probing.facts if fact[1] != fact[2]]


def test_keys_of_the_reference_differ_in_every_field() -> None:
    assert wrong(ReferenceProvider()) == []


def test_a_shared_key_is_named_whichever_of_several_it_is() -> None:
    provider = ReferenceProvider()
    provider.features = {"recipe_keys": lambda r: (r.key, r.key.replace("margin=1", "margin=0"))}
    ((name, _, seen),) = wrong(provider)
    assert name.startswith("delayed_scaling")
    assert seen == ["delayed_scaling(margin=1) = delayed_scaling"]


def test_a_copy_that_is_another_recipe_is_named_with_the_way_it_was_made() -> None:
    from harness.faults.recipe_pickled_as_default import FAULT

    with FAULT.apply(ReferenceProvider()) as provider:
        found = {name: seen for name, _, seen in wrong(provider)}
    assert all("unlike a copy" in name for name in found)
    assert found["mxfp8_block_scaling: of 3 recipes those unlike a copy of theirs"] == [
        f"mxfp8_block_scaling({field}) by {how}"
        for field in ("fp8_format=HYBRID", "scale_rounding=floor")
        for how in ("copy", "deepcopy", "pickle")
    ]


def test_a_key_that_is_another_each_time_is_named() -> None:
    provider = ReferenceProvider()
    provider.features = {"recipe_keys": lambda r: (r.key, str(id(r)))}
    kept: list[Any] = []  # so that no address is used twice
    make = provider.recipe
    provider.recipe = lambda spec: kept.append(make(spec)) or kept[-1]  # type: ignore[method-assign, func-returns-value]
    assert {name.partition(":")[0] for name, *_ in wrong(provider)} == set(RECIPES)


def test_frozen_recipes_are_told_apart_from_those_that_can_be_changed() -> None:
    axes = Axes("recipe_switch", Spec("reference"), CURRENT, variant="mutated")
    told = asks(ReferenceProvider(), axes, "cpu")
    assert told["refusal"] == "FrozenInstanceError"
    assert told["fields"] == ("fp8_format", "power_2_scale", "amax_epsilon")


class Half:
    """Refuses, and changes nevertheless."""

    def __init__(self, value: int) -> None:
        vars(self)["value"] = value

    def __setattr__(self, name: str, value: object) -> None:
        vars(self)[name] = value
        raise AttributeError(f"no {name}")


class Free:
    def __init__(self, value: int) -> None:
        self.value = value


def test_a_change_must_be_what_the_provider_said() -> None:
    assert _Mutating(Free(1), "value", "").become(Free(2)).value == 2
    with pytest.raises(NotAsDocumented, match="nothing was raised"):
        _Mutating(Free(1), "value", "AttributeError").become(Free(2))
    with pytest.raises(RuntimeError, match="changed nevertheless"):
        _Mutating(Half(1), "value", "AttributeError").become(Free(2))


def test_a_provider_without_another_recipe_is_skipped() -> None:
    provider = ReferenceProvider()

    def only(spec: Spec) -> object:
        if spec.fields:
            raise ValueError("no fields here")
        return object()

    provider.recipe = only  # type: ignore[method-assign, assignment]
    axes = Axes("recipe_switch", Spec("reference"), CURRENT, variant="inside")
    assert "no recipe that differs" in unavailable(provider, axes, "cpu")
    assert unavailable(ReferenceProvider(), axes, "cpu") == ""
