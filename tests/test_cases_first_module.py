"""cases/first_module.py: the sequence of claims, as it must be and with a claim given back; the oracle's own rule."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cases.first_module import CASE, claims
from harness.faults.first_module_revived import FAULT
from harness.judge.oracle_provider import OracleProvider
from harness.probing import Probing
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Evidence, Spec

RECIPE = Spec("float8_current_scaling")
AXES = Axes(CASE.name, Spec("reference"), RECIPE, variant="nested")


def probing(provider: Any) -> Probing:
    cpu = torch.device("cpu")
    return Probing(provider, AXES, Evidence.NATIVE, "cpu", cpu, torch.bfloat16, lambda moment: contextlib.nullcontext())


@pytest.fixture
def provider() -> Iterator[ReferenceProvider]:
    made = ReferenceProvider()
    made.reset()
    yield made
    made.reset()


def unmet(stated: Probing) -> list[str]:
    return [fact.name for fact in stated.facts if fact.expected != fact.seen]


def test_every_claim_of_the_reference_is_as_stated(provider: ReferenceProvider) -> None:
    stated = probing(provider)
    claims(stated)
    assert len(stated.facts) == 5
    assert unmet(stated) == []


def test_a_claim_given_back_is_named(provider: ReferenceProvider) -> None:
    with FAULT.apply(provider) as broken:
        stated = probing(broken)
        claims(stated)
    assert unmet(stated) == ["claims after that region, in a disabled one and outside it"]


def test_the_oracle_has_the_same_sequence_by_a_rule_of_its_own() -> None:
    stated = probing(OracleProvider(torch.bfloat16))
    claims(stated)
    assert unmet(stated) == []


def test_an_exception_takes_the_oracles_claim_along() -> None:
    oracle = OracleProvider(torch.bfloat16)
    ask = oracle.features["first_module"]
    with pytest.raises(ZeroDivisionError), oracle.autocast(recipe=oracle.recipe(RECIPE)):
        raise ZeroDivisionError
    assert ask() is False


@pytest.mark.parametrize(
    ("features", "variant", "reason"),
    [
        ({}, "nested", "reference has no first_module"),
        ({"first_module": bool}, "nested", ""),
        ({"first_module": bool}, "recompute", "reference has no checkpoint"),
    ],
)
def test_what_a_provider_must_offer(
    provider: ReferenceProvider, features: dict[str, Any], variant: str, reason: str
) -> None:
    provider.features = features
    axes = Axes(CASE.name, Spec("reference"), RECIPE, variant=variant)
    assert CASE.unavailable(provider, axes, "cpu") == reason


def test_layers_that_ask_for_the_flag_themselves_are_left_alone(provider: ReferenceProvider) -> None:
    provider.features = {"first_module": bool, "layers_claim_first": lambda recipe: recipe == "delayed_scaling"}
    delayed, current = (Spec("delayed_scaling"), RECIPE)
    reasons = [
        CASE.unavailable(provider, Axes(CASE.name, Spec("reference"), recipe, variant="nested"), "cpu")
        for recipe in (delayed, current)
    ]
    assert reasons == ["layers of reference ask for the flag themselves under delayed_scaling", ""]
