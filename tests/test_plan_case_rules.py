"""Which axis values a case has a program for: each rule with a value that breaks it and a good twin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from cases import CASES
from harness.plan import SelectionError, axes_from_id
from harness.plan.axes import SCHEMA_DEFAULTS
from harness.plan.case_rules import Misfit, misfit_of, variant_names, variants_of
from harness.types import NESTINGS, RECIPES, CaseEntry, Spec
from tests.support.fake_cases import fake_cases

REGISTERED = dict(CASES)  # before the fixture below takes their place
MX, DELAYED = "mxfp8_block_scaling", "delayed_scaling"


@pytest.fixture(autouse=True, scope="module")
def _cases() -> Iterator[None]:
    with fake_cases():
        yield


def values(case: str, **others: Any) -> dict[str, Any]:
    return {**SCHEMA_DEFAULTS, "recipe": Spec(MX), "case": case, **others}


@pytest.mark.parametrize(
    ("bad", "misfit"),
    [
        (
            values("toy_linear", variant="reentrant"),
            Misfit("variant", "case 'toy_linear' has no variants, so none can be named"),
        ),
        (
            values("checkpoint", variant="non_reentrant"),
            Misfit("variant", "case 'checkpoint' has no variant 'non_reentrant'", "nonreentrant"),
        ),
        (
            values("checkpoint", variant="zeros"),
            Misfit("variant", "case 'checkpoint' has no variant 'zeros', only reentrant, nonreentrant, around"),
        ),
        (
            values("checkpoint", variant="around", nesting="deep"),
            Misfit("nesting", "case 'checkpoint' has no program of nesting 'deep', only flat, nested"),
        ),
        (
            values("delayed"),
            Misfit("recipe", f"case 'delayed' has no program for recipe '{MX}', only for {DELAYED}"),
        ),
        (
            values("toy_linear", target="mine.models:build"),
            Misfit("target", "case 'toy_linear' takes no target: that is for case 'target'"),
        ),
        (
            values("target"),
            Misfit("target", "case 'target' needs a target: package.module:attribute of the program to run"),
        ),
    ],
    ids=["no variants", "near variant", "another's variant", "nesting", "recipe", "target", "no target"],
)
def test_what_a_case_has_no_program_for(bad: dict[str, Any], misfit: Misfit) -> None:
    assert misfit_of(bad) == misfit


@pytest.mark.parametrize(
    "good",
    [
        values("toy_linear", nesting="deep"),
        values("checkpoint", variant="nonreentrant", nesting="nested"),
        values("delayed", recipe=Spec(DELAYED, (("margin", 1),))),
        values("target", target="mine.models:build"),
        values("no such case", variant="x", nesting="deep"),  # reported where it stands in the file
    ],
    ids=lambda good: str(good["case"]),
)
def test_what_it_has_a_program_for(good: dict[str, Any]) -> None:
    assert misfit_of(good) is None


def test_no_variant_named_means_all_of_them() -> None:
    assert variants_of(values("checkpoint")) == ("reentrant", "nonreentrant", "around")
    assert variants_of(values("checkpoint", variant="around")) == ("around",)
    assert variants_of(values("toy_linear")) == ("",)
    assert variants_of(values("no such case")) == ("",)


def test_a_case_with_variants_has_no_program_without_one() -> None:
    """Planning fills it in; an id that lacks it names no cell."""
    message = "case 'checkpoint' needs a variant: reentrant, nonreentrant, around"
    assert misfit_of(values("checkpoint")) == Misfit("variant", message)
    with pytest.raises(SelectionError, match=f"not a cell id: .*; {message}"):
        axes_from_id(f"checkpoint[provider=reference,recipe={MX}]")


def test_the_names_of_all_variants() -> None:
    assert variant_names() == ("reentrant", "nonreentrant", "around", "zeros", "one_huge")


def unusable(entries: dict[str, CaseEntry]) -> list[str]:
    """Names that could not stand in ids, and entries that planning would misread."""
    wrong = []
    for case, entry in entries.items():
        names = [name for name in entry.variants if not re.fullmatch(r"[a-z][a-z0-9_]*", name)]
        strangers = set(entry.nestings) - set(NESTINGS) | set(entry.recipes) - set(RECIPES)
        pairs = set(entry.pair) - set(entry.variants or ("",))
        if names or strangers or pairs or len(set(entry.variants)) < len(entry.variants) or not entry.nestings:
            wrong.append(case)
    return wrong


def test_entries_that_planning_would_misread_are_found() -> None:
    assert unusable(dict(CASES)) == []
    bad = {
        "name": CaseEntry("m:CASE", variants=("Two words",)),
        "twice": CaseEntry("m:CASE", variants=("a", "a")),
        "nesting": CaseEntry("m:CASE", nestings=("flat", "deeper")),
        "none": CaseEntry("m:CASE", nestings=()),
        "recipe": CaseEntry("m:CASE", recipes=("fp8",)),
        "pair": CaseEntry("m:CASE", variants=("a",), pair=("b",)),
        "lone pair": CaseEntry("m:CASE", variants=("a",), pair=("",)),
    }
    assert unusable(bad) == list(bad)


def test_the_registered_cases_are_sound() -> None:
    assert unusable(REGISTERED) == []
