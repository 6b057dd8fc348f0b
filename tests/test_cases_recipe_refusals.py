"""cases.recipe_refusals: what the reference says that it refuses it refuses, and what is taken is named."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from cases.recipe_fields import VALUES
from cases.recipe_refusals import FOREIGN, recipe_refusals
from harness.faults import FAULTS
from harness.faults.patching import patched
from harness.probing import Probing
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.providers.reference_features import refused_values
from harness.registry import load
from harness.types import Axes, Evidence, Spec

CPU = torch.device("cpu")
VALUE = ": values out of range that are not refused by their field's name"


def probed(provider: Any, *, fullgraph: bool = True) -> Probing:
    axes = Axes("recipe_switch", Spec("reference"), Spec("float8_current_scaling"), fullgraph=fullgraph)
    part = lambda moment: contextlib.nullcontext()  # noqa: E731
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", CPU, torch.bfloat16, part)
    recipe_refusals(probing, CaseContext(provider, axes, None, CPU, torch.bfloat16))
    return probing


def wrong(probing: Probing) -> dict[str, str]:
    return {fact.name: fact.seen for fact in probing.facts if fact.expected != fact.seen}


@pytest.mark.parametrize("fullgraph", [True, False])
def test_the_reference_refuses_all_that_it_says(fullgraph: bool) -> None:
    probing = probed(ReferenceProvider(), fullgraph=fullgraph)
    assert (wrong(probing), len(probing.facts)) == ({}, len(VALUES) + 2 * len(FOREIGN))


@pytest.mark.parametrize("name", VALUES)
def test_the_reference_says_something_of_every_field(name: str) -> None:
    assert set(refused_values(name)) == set(VALUES[name])


def test_values_that_are_taken_are_named() -> None:
    with load(FAULTS["values_unvalidated"]).apply(ReferenceProvider()) as provider:
        found = wrong(probed(provider))
    assert {name.partition(":")[0] for name in found} == {name for name in VALUES if "amax_epsilon" in VALUES[name]}
    assert found["float8_block_scaling" + VALUE] == "['amax_epsilon=-1.0', 'amax_epsilon=nan']"


def test_a_refusal_that_does_not_name_its_field_is_none() -> None:
    provider = ReferenceProvider()

    def mute(spec: Spec) -> Any:
        raise ValueError("no")

    refused = {"refused_values": lambda name: {"fp8_format": ("E5M2",)}}
    with patched(provider, "features", refused), patched(provider, "recipe", mute):
        found = wrong(probed(provider))
    assert found == {name + VALUE: "[\"fp8_format='E5M2': ValueError: no\"]" for name in VALUES}


def test_foreign_recipes_that_open_a_region_are_named() -> None:
    with load(FAULTS["foreign_recipe_taken"]).apply(ReferenceProvider()) as provider:
        found = wrong(probed(provider))
    assert found == {
        f"{what} in the place of a recipe, {how}": "['nothing', 'nothing']"
        for what in FOREIGN
        for how in ("eager", "compiled")
    }


def test_a_provider_that_promises_nothing_is_not_asked() -> None:
    provider = ReferenceProvider()
    with patched(provider, "features", {}):
        assert probed(provider).facts == []
