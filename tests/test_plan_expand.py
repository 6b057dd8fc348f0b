"""From matrix to cells: order, exclude, include, adjust, expectations, provenance, --set."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.plan import Matrix, MatrixErrors, SelectionError, expand
from harness.plan.load import matrix_from_bytes
from harness.types import Budgets, Raises, Spec, Waiver
from tests.support.plan_strategies import AXIS_VALUES, as_matrix, matrices

HEAD = "schema_version: 1\n"
MX, FP4, DELAYED = "mxfp8_block_scaling", "nvfp4_block_scaling", "delayed_scaling"


def load(text: str) -> Matrix:
    return matrix_from_bytes((HEAD + text).encode(), Path("dir/m.yaml"))


def short(matrix_or_cells: Any) -> list[str]:
    """Ids without what all of these tests' cells share."""
    cells = getattr(matrix_or_cells, "cells", matrix_or_cells)
    return [cell.id.removeprefix("toy_linear[provider=reference,recipe=").removesuffix("]") for cell in cells]


def test_the_first_axis_changes_slowest_and_includes_come_last() -> None:
    matrix = load(
        f"matrix: {{nesting: [flat, nested_disabled], recipe: [{MX}, {FP4}]}}\n"
        f"include: [{{recipe: {DELAYED}, seed: 3}}]\n"
    )
    assert short(matrix.full) == [
        MX,
        FP4,
        f"{MX},nesting=nested_disabled",
        f"{FP4},nesting=nested_disabled",
        f"{DELAYED},seed=3",
    ]


@settings(deadline=None, max_examples=60)
@given(matrices())
def test_the_product_is_complete(data: dict[str, Any]) -> None:
    size = 1
    for values in data["matrix"].values():
        size *= len(values)
    assert len(as_matrix(data).full.cells) == size


@settings(deadline=None, max_examples=30)
@given(matrices())
def test_the_same_file_gives_the_same_plan(data: dict[str, Any]) -> None:
    assert as_matrix(data).full == as_matrix(data).full


@settings(deadline=None, max_examples=60)
@given(matrices(), st.data())
def test_exclude_removes_exactly_what_it_matches(data: dict[str, Any], draw: st.DataObject) -> None:
    full = as_matrix(data).full
    axis = draw.draw(st.sampled_from(list(data["matrix"])))
    value = draw.draw(st.sampled_from(data["matrix"][axis]))
    assume(not isinstance(value, str) or axis not in ("recipe", "provider"))
    excluded = as_matrix({**data, "matrix": {**data["matrix"], axis: [value]}}).full.cells
    assume(len(excluded) < len(full.cells))
    rest = as_matrix({**data, "exclude": [{axis: value}]}).full.cells
    assert [cell.id for cell in rest] == [one.id for one in full.cells if one.id not in {cell.id for cell in excluded}]


def test_patterns_are_exact_and_lists_are_any_of() -> None:
    text = f"matrix: {{recipe: [{MX}], nesting: [flat, nested, nested_disabled, deep]}}\n"
    assert short(load(text + "exclude: [{nesting: nested}]\n").full) == [
        MX,
        f"{MX},nesting=nested_disabled",
        f"{MX},nesting=deep,inner=float8_current_scaling",
    ]
    assert short(load(text + "exclude: [{nesting: [nested, deep]}]\n").full) == [MX, f"{MX},nesting=nested_disabled"]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        (DELAYED, []),
        (f"{{name: {DELAYED}}}", ["(margin=1)", "(margin=2)"]),
        (f"{{name: {DELAYED}, margin: 1}}", ["", "(margin=2)"]),
    ],
    ids=["bare name: any fields", "mapping without fields: none", "mapping: exactly these"],
)
def test_how_recipes_match(pattern: str, left: list[str]) -> None:
    recipes = f"[{MX}, {DELAYED}, {{name: {DELAYED}, margin: 1}}, {{name: {DELAYED}, margin: 2}}]"
    matrix = load(f"matrix: {{recipe: {recipes}}}\nexclude: [{{recipe: {pattern}}}]\n")
    assert short(matrix.full) == [MX, *(DELAYED + fields for fields in left)]


def test_adjust_changes_included_cells_too_and_in_order() -> None:
    matrix = load(
        f"matrix: {{recipe: [{MX}]}}\ninclude: [{{recipe: {MX}, dtype: float32}}]\n"
        f"adjust:\n- {{when: {{recipe: {MX}}}, set: {{seed: 1}}}}\n"
        "- {when: {seed: 1, dtype: float32}, set: {seed: 2, data: positive}}\n"
    )
    assert short(matrix.full) == [f"{MX},seed=1", f"{MX},dtype=float32,data=positive,seed=2"]


def test_matrix_wins_over_defaults_which_includes_keep() -> None:
    matrix = load(
        f"defaults: {{backend: eager, recipe: {FP4}}}\n"
        f"matrix: {{recipe: [{MX}], backend: [inductor]}}\n"
        "include: [{seed: 1}]\n"
    )
    assert short(matrix.full) == [f"{MX},backend=inductor", f"{FP4},backend=eager,seed=1"]


def test_a_label_holds_only_what_the_user_wrote_sorted() -> None:
    (cell,) = load(f"matrix: {{recipe: [{{name: {DELAYED}, margin: 0, amax_history_len: 16}}]}}\n").full.cells
    assert cell.axes.recipe == Spec(DELAYED, (("amax_history_len", 16), ("margin", 0)))


def test_budgets_and_raises_come_from_the_last_that_says_so() -> None:
    matrix = load(
        f"matrix: {{recipe: [{MX}, {FP4}]}}\n"
        "budgets: {recompiles: 2, eager_frames: null}\n"
        "expect:\n"
        "- {when: {seed: 0}, raises: {type: ValueError, match: first}, budgets: {graphs: 3}}\n"
        f"- when: {{recipe: {FP4}}}\n"
        "  raises: {type: torch.Error, match: '^x$', phase: run}\n"
        "  budgets: {recompiles: 1}\n"
    )
    first, second = matrix.full.cells
    assert first.expect.budgets == Budgets(graph_breaks=0, recompiles=2, eager_frames=None, graphs=3)
    assert first.expect.raises == Raises("ValueError", "first", "compile")
    assert second.expect.budgets == Budgets(graph_breaks=0, recompiles=1, eager_frames=None, graphs=3)
    assert second.expect.raises == Raises("torch.Error", "^x$", "run")


def test_every_setting_says_where_it_came_from() -> None:
    matrix = load(
        "defaults: {dtype: float16}\n"
        f"matrix: {{recipe: [{MX}], nesting: [nested]}}\n"
        "adjust: [{when: {nesting: nested}, set: {seed: 5}}]\n"
        "budgets: {recompiles: 1}\n"
        "expect:\n- when: {seed: 5}\n  raises: {type: E, match: x}\n  budgets: {graphs: 2}\n"
        "waivers:\n- {kind: quarantine, when: {seed: 5}, reason: r, url: https://a.b, owner: o, expires: 2030-01-01}\n"
    )
    (cell,) = matrix.full.cells
    assert cell.origin == {
        **dict.fromkeys(
            ("case", "provider", "arch", "fullgraph", "variant", "target", "backend", "shape", "data", "dynamic"),
            "schema default",
        ),
        **dict.fromkeys(("budgets.graph_breaks", "budgets.eager_frames"), "schema default"),
        "dtype": "m.yaml:2:19 defaults.dtype",
        "recipe": "m.yaml:3:19 matrix.recipe",
        "nesting": "m.yaml:3:51 matrix.nesting",
        "inner": "partner table",
        "seed": "m.yaml:4:48 adjust[0]",
        "budgets.recompiles": "m.yaml:5:23 budgets",
        "budgets.graphs": "m.yaml:9:21 expect[0]",
        "raises": "m.yaml:8:11 expect[0]",
        "waivers[0]": "m.yaml:11:3 waivers",
    }


def test_a_waiver_for_an_architecture_goes_with_cells_that_may_run_on_it() -> None:
    waiver = "{kind: xfail, when: {arch: [sm90]}, reason: r, url: https://a.b, owner: o, expires: 2030-01-01}"
    matrix = load(f"matrix: {{recipe: [{MX}], arch: [host, sm90, cpu]}}\nwaivers: [{waiver}]\n")
    assert [bool(cell.expect.waivers) for cell in matrix.full.cells] == [True, True, False]
    assert matrix.full.cells[0].expect.waivers[0].when == (("arch", ("sm90",)),)


def test_a_waiver_for_programs_of_a_case_goes_with_those() -> None:
    waiver = "{kind: xfail, when: {case: %s, variant: %s}, reason: r, owner: o, expires: 2030-01-01}"
    several, one = waiver % ("[stack, disabled]", "[whole, inside]"), waiver % ("disabled", "around")
    text = f"include: [{{recipe: {MX}, case: [stack, disabled]}}]\nwaivers: [{several}, {one}]\n"
    waived = {cell.axes.variant: cell.expect.waivers for cell in load(text).full.cells if cell.expect.waivers}
    assert {variant: len(held) for variant, held in waived.items()} == {"whole": 1, "inside": 1, "around": 1}
    assert waived["around"][0].when == (("case", ("disabled",)), ("variant", ("around",)))


def test_a_waiver_carries_all_of_its_entry() -> None:
    waiver = (
        "{kind: xfail, when: {recipe: [mxfp8_block_scaling, nvfp4_block_scaling], fullgraph: true},"
        " versions: {torch: '>=2.12,<3', cuda: ==13.*},"
        " reason: r s, url: https://a.b, owner: o, expires: 2030-01-01}"
    )
    (cell,) = load(f"matrix: {{recipe: [{MX}]}}\nwaivers: [{waiver}]\n").full.cells
    assert cell.expect.waivers == (
        Waiver(
            kind="xfail",
            reason="r s",
            url="https://a.b",
            owner="o",
            expires="2030-01-01",
            versions=(("cuda", "==13.*"), ("torch", ">=2.12,<3")),
            where="dir/m.yaml:3:11",
            when=(("recipe", (MX, FP4)), ("fullgraph", ("true",))),
        ),
    )


def test_a_waiver_may_name_checks_and_need_not_have_a_report() -> None:
    waiver = "{kind: xfail, when: {seed: 0}, checks: [error.refusal, a.b_c], reason: r, owner: o, expires: 2030-01-01}"
    (cell,) = load(f"matrix: {{recipe: [{MX}]}}\nwaivers: [{waiver}]\n").full.cells
    assert (cell.expect.waivers[0].checks, cell.expect.waivers[0].url) == (("error.refusal", "a.b_c"), "")


def test_an_expired_waiver_is_carried() -> None:
    """Expiry is a verdict of that cell, not an error of the file: the run goes on."""
    waiver = "{kind: xfail, when: {seed: 0}, reason: r, url: https://a.b, owner: o, expires: 2001-01-01}"
    (cell,) = load(f"matrix: {{recipe: [{MX}]}}\nwaivers: [{waiver}]\n").full.cells
    assert cell.expect.waivers[0].expires == "2001-01-01"


def test_the_digest_tells_plans_apart() -> None:
    base = f"matrix: {{recipe: [{MX}, {FP4}]}}\n"
    others = [
        base + "require: native\n",
        base + "name: other\n",
        base + "budgets: {graphs: 1}\n",
        base + "defaults: {seed: 1}\n",
        f"matrix: {{recipe: [{FP4}, {MX}]}}\n",
    ]
    digests = [load(text).full.digest for text in (base, *others)]
    assert len(set(digests)) == len(digests)
    assert load(base + "# a comment\n").full.digest == digests[0]


OVERRIDDEN = (
    f"defaults: {{backend: eager}}\nmatrix: {{recipe: [{MX}, {FP4}], nesting: [flat, deep]}}\n"
    f"exclude: [{{recipe: {FP4}, nesting: deep}}]\ninclude: [{{recipe: {DELAYED}, nesting: deep}}]\n"
    f"adjust: [{{when: {{recipe: {FP4}}}, set: {{seed: 4}}}}]\n"
    f"expect: [{{when: {{nesting: deep}}, raises: {{type: E, match: x}}}}]\n"
)


def test_set_replaces_an_axis_everywhere() -> None:
    matrix = load(OVERRIDDEN)
    plan = expand(matrix, {"nesting": ["nested_disabled"], "seed": ["7", "8"]})
    rest = "nesting=nested_disabled,backend=eager,seed"
    assert short(plan) == [f"{name},{rest}={seed}" for name in (MX, FP4, DELAYED) for seed in (7, 8)]
    assert {cell.origin["nesting"] for cell in plan.cells} == {cell.origin["seed"] for cell in plan.cells} == {"--set"}
    assert all(cell.expect.raises is None for cell in plan.cells)


def test_set_comes_before_exclude() -> None:
    plan = expand(load(OVERRIDDEN), {"nesting": ["deep"]})
    assert [cell.axes.recipe.name for cell in plan.cells] == [MX, DELAYED]
    assert all(cell.expect.raises for cell in plan.cells)


def test_set_makes_alike_cells_one() -> None:
    plan = expand(load(OVERRIDDEN), {"recipe": [f"{DELAYED}(amax_history_len=16)", MX]})
    names = [cell.axes.recipe.label for cell in plan.cells if cell.axes.nesting == "deep"]
    assert names == [f"{DELAYED}(amax_history_len=16)", MX]
    assert short(expand(load(f"matrix: {{recipe: [{MX}]}}\n"), {"seed": ["1", "1"]})) == [f"{MX},seed=1"]


def test_without_overrides_it_is_the_files_plan() -> None:
    matrix = load(OVERRIDDEN)
    assert expand(matrix) is matrix.full
    assert expand(matrix, {}) is matrix.full


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"recipes": [MX]}, "--set: unknown axis 'recipes' (did you mean recipe?)"),
        ({"recipe": ["mxfp8"]}, "--set recipe=mxfp8: unknown recipe 'mxfp8' (did you mean mxfp8_block_scaling?)"),
        ({"fullgraph": ["no"]}, "--set fullgraph=no: expected true or false, got 'no' (did you mean false?)"),
        (
            {"shape": ["128x128"]},
            "--set shape=128x128: expected a shape [M, K, N] of three positive integers, got 2 values",
        ),
        ({"recipe": [f"{MX}(rounding=floor)"]}, f"--set recipe={MX}(rounding=floor): unknown field 'rounding'"),
        ({"seed": []}, "--set seed=: at least one value is needed"),
        (
            {"seed": [str(n) for n in range(40_000)]},
            "--set: 200000 cells, more than the 100000 that one matrix may have",
        ),
    ],
    ids=["axis", "recipe", "boolean", "shape", "field", "none", "too many"],
)
def test_bad_overrides(overrides: dict[str, list[str]], message: str) -> None:
    with pytest.raises(SelectionError) as caught:
        expand(load(OVERRIDDEN), overrides)
    assert str(caught.value) == message


@settings(deadline=None, max_examples=60)
@given(matrices(), st.data())
def test_set_gives_what_the_file_would_give_with_that_axis(data: dict[str, Any], draw: st.DataObject) -> None:
    axis = draw.draw(
        st.sampled_from([one for one in sorted(AXIS_VALUES) if one not in ("recipe", "provider", "shape")])
    )
    values = draw.draw(st.lists(AXIS_VALUES[axis], min_size=1, max_size=2, unique=True))
    spelled = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    rewritten = {**data, "matrix": {**data["matrix"], axis: values}}
    overridden = expand(as_matrix(data), {axis: spelled})
    assert [cell.axes for cell in overridden.cells] == [cell.axes for cell in as_matrix(rewritten).full.cells]


def test_entries_are_judged_against_the_file_and_not_against_set() -> None:
    with pytest.raises(MatrixErrors, match="this expect matches no cell: no cell has nesting nested"):
        load(OVERRIDDEN.replace("{when: {nesting: deep}", "{when: {nesting: nested}"))
    for nesting, seed in itertools.product(("flat", "nested"), ("0", "9")):
        assert expand(load(OVERRIDDEN), {"nesting": [nesting], "seed": [seed]}).cells
