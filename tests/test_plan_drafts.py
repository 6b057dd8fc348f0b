"""Variants and targets through a whole plan, include entries with lists, and where their mistakes are reported."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.plan import Matrix, Selection, SelectionError, expand, render_plan, select
from harness.plan.load import matrix_from_bytes
from harness.plan.select import why_nothing
from tests.support.fake_cases import fake_cases
from tests.support.plan_strategies import as_matrix, case_entries
from tests.support.plan_texts import HEAD, errors_of

MX, FP4, DELAYED = "mxfp8_block_scaling", "nvfp4_block_scaling", "delayed_scaling"
CHECKPOINT = ["reentrant", "nonreentrant", "around"]


@pytest.fixture(autouse=True, scope="module")
def _cases() -> Iterator[None]:
    with fake_cases():
        yield


def load(text: str) -> Matrix:
    return matrix_from_bytes((HEAD + text).encode(), Path("m.yaml"))


def programs(matrix_or_plan: Any) -> list[str]:
    """``case`` or ``case/variant`` of each cell, in order."""
    cells = getattr(matrix_or_plan, "full", matrix_or_plan).cells
    return [f"{cell.axes.case}/{cell.axes.variant}".rstrip("/") for cell in cells]


def marked(text: str) -> tuple[str, list[str]]:
    """A matrix without its marks ``§``, and ``line:column`` of what each of them stood before."""
    places = []
    text = HEAD + text
    while "§" in text:
        before, after = text.split("§", 1)
        places.append(f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}")
        text = before + after
    return text, places


def check_mistakes(text: str, *messages: str) -> None:
    """The matrix has these mistakes and no others, each where a mark stands before it."""
    text, places = marked(text)
    assert errors_of(text) == [f"{place}: {message}" for place, message in zip(places, messages, strict=True)]


ALL = [f"checkpoint/{variant}" for variant in CHECKPOINT]


# Which cells there are.


def test_a_matrix_that_names_no_variant_runs_them_all() -> None:
    matrix = load(f"matrix: {{recipe: [{MX}], case: [toy_linear, checkpoint, amax_edges]}}\n")
    assert programs(matrix) == ["toy_linear", *ALL, "amax_edges/zeros", "amax_edges/one_huge"]
    assert {cell.origin["variant"] for cell in matrix.full.cells[1:]} == {"every variant of the case"}
    assert matrix.full.cells[0].origin["variant"] == "schema default"


@pytest.mark.parametrize(
    "text",
    [
        f"matrix: {{recipe: [{MX}], case: [checkpoint], variant: [around, reentrant]}}\n",
        f"defaults: {{case: checkpoint}}\nmatrix: {{recipe: [{MX}], variant: [around, reentrant]}}\n",
        f"include: [{{recipe: {MX}, case: checkpoint, variant: [around, reentrant]}}]\n",
        f"include: [{{recipe: {MX}, case: checkpoint}}]\nmatrix: {{recipe: [{FP4}]}}\nexclude: [{{recipe: {FP4}}}]\n",
    ],
    ids=["matrix", "defaults", "include", "include: all"],
)
def test_variants_run_in_the_order_they_are_named_in(text: str) -> None:
    named = "variant: [" in text
    assert programs(load(text)) == (["checkpoint/around", "checkpoint/reentrant"] if named else ALL)


def test_a_default_variant_is_for_cells_that_name_none() -> None:
    matrix = load(
        f"defaults: {{case: checkpoint, variant: around}}\nmatrix: {{recipe: [{MX}]}}\n"
        f"include: [{{recipe: {MX}, variant: reentrant}}]\n"
    )
    assert programs(matrix) == ["checkpoint/around", "checkpoint/reentrant"]


def test_an_adjust_to_another_case_runs_its_variants_which_later_entries_see() -> None:
    matrix = load(
        f"matrix: {{recipe: [{MX}, {FP4}]}}\n"
        f"adjust:\n- {{when: {{recipe: {FP4}}}, set: {{case: amax_edges}}}}\n"
        "- {when: {variant: zeros}, set: {seed: 3}}\n"
    )
    assert programs(matrix) == ["toy_linear", "amax_edges/zeros", "amax_edges/one_huge"]
    assert [cell.axes.seed for cell in matrix.full.cells] == [0, 3, 0]


def test_exclude_expect_and_waivers_mean_variants() -> None:
    matrix = load(
        f"matrix: {{recipe: [{MX}], case: [checkpoint, amax_edges]}}\n"
        "exclude: [{variant: [nonreentrant, one_huge]}]\n"
        "expect: [{when: {variant: around}, raises: {type: E, match: x}}]\n"
        "waivers: [{kind: xfail, when: {variant: zeros}, reason: r, owner: o, expires: 2030-01-01}]\n"
    )
    assert programs(matrix) == ["checkpoint/reentrant", "checkpoint/around", "amax_edges/zeros"]
    assert [bool(cell.expect.raises) for cell in matrix.full.cells] == [False, True, False]
    assert [bool(cell.expect.waivers) for cell in matrix.full.cells] == [False, False, True]


def test_selections_mean_variants_exactly() -> None:
    plan = load(f"matrix: {{recipe: [{MX}], case: [toy_linear, checkpoint]}}\n").full
    chosen = select(plan, Selection(select={"variant": ["reentrant", "around"]}))
    assert [cell.axes.variant for cell in chosen] == ["reentrant", "around"]
    cell = f"checkpoint[provider=reference,recipe={MX},variant=reentrant]"
    assert [one.id for one in select(plan, Selection(cells=(cell,)))] == [cell]
    nothing = Selection(select={"variant": ["zeros"]})
    assert select(plan, nothing) == ()
    assert why_nothing(plan, nothing) == "no cell has variant zeros; there is none, reentrant, nonreentrant, around"


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"select": {"variant": ["reentrent"]}}, "--select variant=reentrent: unknown variant 'reentrent' (did you"),
        ({"cells": (f"checkpoint[provider=reference,recipe={MX},variant=zeros]",)}, "no cell 'checkpoint[provider=r"),
        ({"select": {"target": ["mine"]}}, "--select target=mine: expected package.module:attribute, got 'mine'"),
    ],
    ids=["--select", "--cell", "target"],
)
def test_selections_of_what_there_is_not(selection: dict[str, Any], message: str) -> None:
    plan = load(f"matrix: {{recipe: [{MX}], case: [checkpoint]}}\n").full
    with pytest.raises(SelectionError) as caught:
        select(plan, Selection(**selection))
    assert str(caught.value).startswith(message)


def test_the_plan_shows_variants_and_targets_only_where_there_are_some() -> None:
    text, (place,) = marked(
        f"matrix: {{recipe: [{MX}], case: [toy_linear, amax_edges]}}\n"
        f"include: [{{recipe: {MX}, case: target, target: §'mine.models:build'}}]\n"
    )
    matrix = load(text.removeprefix(HEAD))
    shown = [line.split() for line in render_plan(matrix.full.cells).splitlines()]
    assert ["variant", "1", "zeros", "<-", "every", "variant", "of", "the", "case"] in shown
    assert ["target", "1", "mine.models:build", "<-", f"m.yaml:{place}", "include[0]"] in shown
    assert sum(line[:1] in (["variant"], ["target"]) for line in shown) == 2
    assert "variant" not in render_plan(matrix.full.cells[:1], verbose=True)


# Include entries with lists.


def test_an_include_is_a_product_whose_first_axis_changes_slowest() -> None:
    text, (flat, mx, one) = marked(
        f"include:\n- {{nesting: [§flat, nested_disabled], recipe: [{FP4}, §{MX}], seed: §1}}\n- {{recipe: {MX}}}\n"
    )
    matrix = load(text.removeprefix(HEAD))
    assert [(cell.axes.nesting, cell.axes.recipe.name, cell.axes.seed) for cell in matrix.full.cells] == [
        *itertools.product(("flat", "nested_disabled"), (FP4, MX), (1,)),
        ("flat", MX, 0),
    ]
    origin = matrix.full.cells[1].origin
    assert [origin[axis] for axis in ("nesting", "recipe", "seed", "data")] == [
        *(f"m.yaml:{place} include[0]" for place in (flat, mx, one)),
        "schema default",
    ]


@settings(deadline=None, max_examples=20)
@given(st.lists(case_entries(), min_size=1, max_size=3, unique_by=repr))
def test_lists_of_one_value_are_the_value(entries: list[dict[str, Any]]) -> None:
    listed = [{axis: [value] for axis, value in entry.items()} for entry in entries]
    cells = [as_matrix({"schema_version": 1, "include": [entry]}).full.cells for entry in entries]
    assert [as_matrix({"schema_version": 1, "include": [entry]}).full.cells[0].id for entry in listed] == [
        cell.id for (cell,) in cells
    ]


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ("§[64, 128, 256]", [(64, 128, 256)]),
        ("[§[64, 128, 256]]", [(64, 128, 256)]),
        ("[§[64, 128, 256], §[32, 64, 96]]", [(64, 128, 256), (32, 64, 96)]),
    ],
    ids=["one", "a list of one", "two"],
)
def test_a_shape_is_one_value_and_a_list_of_shapes_is_many(shape: str, values: list[tuple[int, ...]]) -> None:
    text, places = marked(f"include: [{{recipe: {MX}, shape: {shape}}}]\n")
    cells = load(text.removeprefix(HEAD)).full.cells
    assert [cell.axes.shape for cell in cells] == values
    assert [cell.origin["shape"] for cell in cells] == [f"m.yaml:{place} include[0]" for place in places]


def test_set_takes_the_place_of_a_list_in_an_include() -> None:
    matrix = load(f"include: [{{recipe: [{MX}, {FP4}], seed: [1, 2, 3]}}]\n")
    plan = expand(matrix, {"seed": ["7"]})
    assert [(cell.axes.recipe.name, cell.axes.seed) for cell in plan.cells] == [(MX, 7), (FP4, 7)]


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            f"include: [{{recipe: [{MX}, §{MX}]}}]\n",
            ["this value stands in the list already"],
        ),
        (
            f"include: [{{recipe: {MX}, shape: [[16, 16, 16], §[16, 16, 16]]}}]\n",
            ["this value stands in the list already"],
        ),
        (
            f"include: [{{recipe: [{MX}, §mxfp8]}}]\n",
            ["unknown recipe 'mxfp8' (did you mean mxfp8_block_scaling?)"],
        ),
        (f"include: [{{recipe: {MX}, seed: §[]}}]\n", ["an empty list: at least one value is needed"]),
        (
            f"include:\n- {{recipe: {MX}, seed: [1, 2]}}\n- §{{recipe: {MX}, seed: [2, 3]}}\n",
            [f"doubles the cell that line 3 gives: toy_linear[provider=reference,recipe={MX},seed=2]"],
        ),
        (
            f"include:\n- {{recipe: {MX}, case: [checkpoint]}}\n"
            f"- §{{recipe: {MX}, case: checkpoint, variant: around}}\n",
            [
                "doubles the cell that line 3 gives: "
                f"checkpoint[provider=reference,recipe={MX},inner=float8_current_scaling,variant=around]"
            ],
        ),
    ],
    ids=["doubled value", "doubled shape", "second value", "empty", "doubled cell", "doubled variant"],
)
def test_wrong_lists_in_an_include(text: str, errors: list[str]) -> None:
    check_mistakes(text, *errors)


@pytest.fixture
def _small_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of 99 cells, and no cell may be made."""
    monkeypatch.setattr("harness.plan.drafts.MAX_CELLS", 99)
    monkeypatch.setattr("harness.plan.drafts._combinations", None)


SEEDS = ", ".join(map(str, range(33)))


@pytest.mark.usefixtures("_small_plans")
@pytest.mark.parametrize(
    ("text", "cells"),
    [
        (f"include:\n- {{recipe: {FP4}}}\n- §{{recipe: [{MX}, {FP4}, {DELAYED}], seed: [{SEEDS}]}}\n", 100),
        (f"matrix: §{{recipe: [{MX}], case: [toy_linear, checkpoint], seed: [{SEEDS}]}}\n", 132),
        (f"include: [§{{recipe: [{MX}, {FP4}], case: amax_edges, seed: [{SEEDS}]}}]\n", 132),
        (f"defaults: {{case: checkpoint}}\nmatrix: §{{recipe: [{MX}, {FP4}], seed: [{SEEDS}]}}\n", 198),
    ],
    ids=["lists of an include", "variants", "variants of an include", "variants of the default case"],
)
def test_too_many_cells_are_refused_before_one_is_made(text: str, cells: int) -> None:
    check_mistakes(text, f"{cells} cells, more than the 99 that one matrix may have")


def test_as_many_cells_as_are_allowed_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.plan.drafts.MAX_CELLS", 99)
    assert len(load(f"matrix: {{recipe: [{MX}], case: [checkpoint], seed: [{SEEDS}]}}\n").full.cells) == 99
    named = f"matrix: {{recipe: [{MX}, {FP4}, {DELAYED}], case: [checkpoint], variant: [around], seed: [{SEEDS}]}}\n"
    assert len(load(named).full.cells) == 99


# What a case has no program for, at its place in the file.


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            f"matrix: {{recipe: [{MX}], case: [checkpoint], variant: [around, §reentrent]}}\n",
            ["unknown variant 'reentrent' (did you mean reentrant?)"],
        ),
        (
            f"matrix: {{recipe: [{MX}], case: [checkpoint]}}\nexclude: [{{variant: §xyz}}]\n",
            ["unknown variant 'xyz': no case has it"],
        ),
        (
            f"matrix: {{recipe: [{MX}], case: [checkpoint], variant: [around, §zeros]}}\n",
            ["case 'checkpoint' has no variant 'zeros', only reentrant, nonreentrant, around"],
        ),
        (
            f"matrix: {{recipe: [{MX}], variant: [§around, §zeros]}}\n",
            [
                "case 'toy_linear' has no variants, so none can be named",
                "case 'toy_linear' has no variants, so none can be named",
            ],
        ),
        (
            f"defaults: {{nesting: deep}}\ninclude:\n- {{recipe: {MX}, case: §amax_edges}}\n- {{recipe: {MX}}}\n",
            ["case 'amax_edges' has no program of nesting 'deep', only flat"],
        ),
        (
            f"include: [{{recipe: [§{MX}, {DELAYED}], case: delayed}}]\n",
            [f"case 'delayed' has no program for recipe '{MX}', only for {DELAYED}"],
        ),
        (
            f"matrix: {{recipe: [§{MX}]}}\nadjust: [{{when: {{recipe: {MX}}}, set: {{case: delayed}}}}]\n",
            [f"case 'delayed' has no program for recipe '{MX}', only for {DELAYED}"],
        ),
        (
            f"defaults: {{recipe: {MX}, case: delayed}}\nmatrix: §{{seed: [1, 2]}}\n",
            [f"case 'delayed' has no program for recipe '{MX}', only for {DELAYED}"],
        ),
        (
            f"matrix: {{recipe: [{MX}], case: [§target]}}\n",
            ["case 'target' needs a target: package.module:attribute of the program to run"],
        ),
        (
            f"include: [{{recipe: {MX}, target: §'mine:build'}}]\n",
            ["case 'toy_linear' takes no target: that is for case 'target'"],
        ),
        (
            f"include: [{{recipe: {MX}, case: target, target: §models/mine.py}}]\n",
            ["expected package.module:attribute, got 'models/mine.py'"],
        ),
        (
            f"matrix: {{recipe: [{MX}], case: [toy_linear, checkpoint, amax_edges], nesting: [flat, §deep]}}\n",
            ["case 'checkpoint' has no program of nesting 'deep', only flat, nested (and so for 1 more case)"],
        ),
    ],
    ids=[
        *("unknown variant", "unknown in a pattern", "another case's", "no variants", "default nesting", "recipe"),
        *("case by adjust", "all by defaults", "no target", "target without the case", "malformed target", "cases"),
    ],
)
def test_mistakes_stand_at_the_axis_that_is_wrong_and_bring_no_others(text: str, errors: list[str]) -> None:
    check_mistakes(text, *errors)


FOLLOWED = f"""\
matrix: {{recipe: [{MX}], case: [checkpoint], variant: [%s]}}
exclude: [%s{{%s, fullgraph: true}}]
include: [{{recipe: {FP4}, case: %s, variant: %szeros}}]
adjust: [{{when: {{variant: around}}, set: {{seed: 1}}}}]
expect: [{{when: {{variant: around, seed: 1}}, budgets: {{graphs: 2}}}}]
waivers: [{{kind: xfail, when: {{variant: around}}, reason: r, owner: o, expires: 2030-01-01}}]
"""


def test_one_wrong_value_is_one_mistake() -> None:
    """Entries about the cells that are missing because of it are not blamed for it; entries of other sections are."""
    zeros = "case 'checkpoint' has no variant 'zeros', only reentrant, nonreentrant, around"
    sound = ("", "variant: reentrant", "amax_edges", "")
    check_mistakes(FOLLOWED % ("reentrant, around", *sound))
    check_mistakes(FOLLOWED % ("§zeros", *sound), zeros)
    check_mistakes(FOLLOWED % ("reentrant, around, §zeros", *sound), zeros)
    check_mistakes(
        FOLLOWED % ("reentrant, around", "§", "seed: 9", "checkpoint", "§"),
        "this exclude matches no cell of the product: no cell has seed 9; there is 0",
        zeros,
    )


def test_an_exclude_may_leave_out_what_a_case_has_no_program_for() -> None:
    matrix = load(
        f"matrix: {{recipe: [{MX}], case: [toy_linear, amax_edges], nesting: [flat, deep]}}\n"
        "exclude: [{case: amax_edges, nesting: deep}]\n"
    )
    assert programs(matrix) == ["toy_linear", "toy_linear", "amax_edges/zeros", "amax_edges/one_huge"]


def test_an_adjust_may_give_the_target() -> None:
    matrix = load(
        f"matrix: {{recipe: [{MX}], case: [toy_linear, target]}}\n"
        "adjust: [{when: {case: target}, set: {target: 'mine.models:Block.build'}}]\n"
    )
    assert [cell.axes.target for cell in matrix.full.cells] == ["", "mine.models:Block.build"]
    assert matrix.full.cells[1].id == f"target[provider=reference,recipe={MX},target=mine.models:Block.build]"


# --set.

MIXED = (
    f"matrix: {{recipe: [{MX}], case: [toy_linear, checkpoint], nesting: [flat, nested]}}\n"
    f"include: [{{recipe: {MX}, case: amax_edges, variant: zeros}}]\n"
)


def test_set_case_runs_all_variants_of_that_case() -> None:
    plan = expand(load(f"matrix: {{recipe: [{MX}], seed: [1, 2]}}\n"), {"case": ["amax_edges"]})
    assert programs(plan) == ["amax_edges/zeros", "amax_edges/one_huge"] * 2
    assert plan.notes == ()


def test_set_leaves_out_what_a_case_has_no_program_for_and_says_so() -> None:
    plan = expand(load(MIXED), {"nesting": ["deep", "flat"]})
    assert programs(plan) == ["toy_linear", "toy_linear", *ALL, "amax_edges/zeros"]
    assert plan.notes == (
        "--set left out 4 cells: case 'checkpoint' has no program of nesting 'deep', only flat, nested; 1 more like it",
    )
    assert expand(load(MIXED), {"nesting": ["flat"]}).notes == ()


def test_set_variant_keeps_the_cases_that_have_it() -> None:
    plan = expand(load(MIXED), {"variant": ["around"]})
    assert programs(plan) == ["checkpoint/around"] * 2
    assert plan.notes[0].startswith("--set left out 3 cells: case 'toy_linear' has no variants")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"variant": ["reentrent"]}, "--set variant=reentrent: unknown variant 'reentrent' (did you mean reentrant?)"),
        (
            {"case": ["delayed"]},
            f"--set case=delayed: case 'delayed' has no program for recipe '{MX}', only for {DELAYED}",
        ),
        (
            {"case": ["checkpoint", "toy_linear"], "variant": ["zeros"]},
            "--set case=checkpoint: case 'checkpoint' has no variant 'zeros', only reentrant, nonreentrant, around",
        ),
        (
            {"target": ["mine:build"]},
            "--set target=mine:build: case 'toy_linear' takes no target: that is for case 'target'",
        ),
    ],
    ids=["unknown variant", "recipe", "variant of another case", "target"],
)
def test_set_to_what_no_case_has(overrides: dict[str, list[str]], message: str) -> None:
    with pytest.raises(SelectionError) as caught:
        expand(load(MIXED), overrides)
    assert str(caught.value) == message
