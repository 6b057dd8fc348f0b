"""cases.region_answers: answers of the reference at every edge, and what a wrong one or a smaller region changes."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
import torch

from cases.region_answers import EDGES, QUESTIONS, REGIONS, _expected, region_answers
from harness.faults import FAULTS
from harness.faults.patching import patched
from harness.probing import Probing
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.registry import load
from harness.types import Axes, Evidence, Spec

CPU = torch.device("cpu")
WAYS = ("eager", "compiled in open regions", "compiled with its regions")


def probed(provider: Any, recipe: str = "float8_current_scaling", *, fullgraph: bool = True) -> Probing:
    axes = Axes("disabled", Spec("reference"), Spec(recipe), variant="inside", fullgraph=fullgraph)
    part = lambda moment: contextlib.nullcontext()  # noqa: E731
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", CPU, torch.bfloat16, part)
    region_answers(CaseContext(provider, axes, None, CPU, torch.bfloat16))(probing)
    return probing


def wrong(probing: Probing) -> set[str]:
    return {fact.name for fact in probing.facts if fact.expected != fact.seen}


@pytest.mark.parametrize(("recipe", "ways"), [("float8_block_scaling", 3), ("delayed_scaling", 2)])
def test_the_reference_answers_at_every_edge(recipe: str, ways: int) -> None:
    probing = probed(ReferenceProvider(), recipe, fullgraph=recipe == "delayed_scaling")
    assert (wrong(probing), len(probing.facts)) == (set(), ways * len(QUESTIONS))


def test_every_region_answers_otherwise_than_the_one_around_it() -> None:
    assert all(inner != outer for outer, inner in itertools.pairwise(EDGES))
    assert len({tuple(bool(answer[place]) for answer in EDGES) for place in range(3)}) == 3


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("calibration_answers_enabled", "it calibrates"),
        ("enabled_answers_outermost", "FP8 is on"),
        ("group_never_answered", "the group is"),
    ],
)
def test_a_wrong_answer_is_named_however_it_is_asked(name: str, question: str) -> None:
    with load(FAULTS[name]).apply(ReferenceProvider()) as provider:
        assert wrong(probed(provider)) == {f"{question}, at each edge, {how}" for how in WAYS}


def test_an_answer_that_compiled_code_keeps_is_seen() -> None:
    provider = ReferenceProvider()
    answers = provider.features["region_answers"]

    def baked() -> Any:
        return (False, False, None) if torch.compiler.is_compiling() else answers()

    with patched(provider, "features", {"region_answers": baked}):
        found = wrong(probed(provider))
    assert found == {f"{question}, at each edge, {how}" for question in QUESTIONS for how in WAYS[1:]}


def test_a_provider_that_cannot_be_asked_states_nothing() -> None:
    provider = ReferenceProvider()
    with patched(provider, "features", {}):
        assert probed(provider).facts == []


def test_what_a_region_is_not_told_it_does_not_answer() -> None:
    assert _expected(REGIONS[1], {"calibrating"}) == (False, True, None)
    assert _expected(REGIONS[1], {"amax_reduction_group"}) == (False, False, "another group")
