"""Selections: exact, composable, sharded without loss, and refused with the nearest name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.plan import Plan, Selection, SelectionError, select, split_values
from harness.plan.select import why_nothing
from tests.support.plan_strategies import as_matrix, matrices

MX, DELAYED = "mxfp8_block_scaling", "delayed_scaling"


@pytest.fixture(scope="module")
def plan() -> Plan:
    recipes = [MX, DELAYED, {"name": DELAYED, "margin": 1}, {"name": DELAYED, "margin": 1, "amax_history_len": 4}]
    nestings = ["flat", "nested", "nested_disabled"]
    providers = ["reference", {"name": "reference", "emulate": False}]
    matrix = {"recipe": recipes, "nesting": nestings, "fullgraph": [True, False], "provider": providers}
    return as_matrix({"schema_version": 1, "matrix": matrix, "include": [{"recipe": MX, "shape": [64, 128, 128]}]}).full


def count(plan: Plan, **parts: Any) -> int:
    return len(select(plan, Selection(**parts)))


def test_nothing_asked_is_everything(plan: Plan) -> None:
    assert select(plan, Selection()) == plan.cells


def test_ids_are_exact(plan: Plan) -> None:
    wanted = [cell.id for cell in plan.cells if cell.axes.nesting == "nested"][:2]
    assert [cell.id for cell in select(plan, Selection(cells=tuple(reversed(wanted))))] == wanted


def test_an_unknown_id_names_the_nearest(plan: Plan) -> None:
    known = plan.cells[0].id
    with pytest.raises(SelectionError) as caught:
        select(plan, Selection(cells=(known, known.replace(MX, "mxfp8_blok_scaling"))))
    assert caught.value.nearest[0] == known
    assert str(caught.value).startswith(
        "no cell 'toy_linear[provider=reference,recipe=mxfp8_blok_scaling]' in m.yaml; nearest:\n"
    )


def test_a_part_of_an_id_is_no_id(plan: Plan) -> None:
    with pytest.raises(SelectionError):
        select(plan, Selection(cells=("toy_linear",)))


@pytest.mark.parametrize(
    ("asked", "cells"),
    [
        ({"nesting": ["nested"]}, 16),  # and not nested_disabled
        ({"nesting": ["nested", "flat"]}, 33),
        ({"nesting": ["nested"], "fullgraph": ["false"]}, 8),
        ({"recipe": [DELAYED]}, 36),
        ({"recipe": [f"{DELAYED}(margin=1)"]}, 12),
        ({"recipe": [f"{DELAYED}(amax_history_len=4,margin=1)"]}, 12),
        ({"recipe": [f"{DELAYED}(margin=1,amax_history_len=4)"]}, 12),
        ({"provider": ["reference"]}, 49),
        ({"provider": ["reference(emulate=false)"]}, 24),
        ({"shape": ["64x128x128"]}, 1),
        ({"arch": ["sm90"]}, 0),
    ],
)
def test_axis_values_are_exact(plan: Plan, asked: dict[str, list[str]], cells: int) -> None:
    assert count(plan, select=asked) == cells


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"select": {"nestng": ["flat"]}}, "--select: unknown axis 'nestng' (did you mean nesting?)"),
        ({"select": {"nesting": ["nestd"]}}, "--select nesting=nestd: unknown nesting 'nestd' (did you mean nested?)"),
        ({"select": {"nesting": []}}, "--select nesting=: at least one value is needed"),
        (
            {"select": {"recipe": [""]}},
            "--select recipe=: expected a recipe (a name, or {name: …, field: …}), got nothing",
        ),
        (
            {"providers": ("refernce",)},
            "--provider provider=refernce: unknown provider 'refernce' (did you mean reference?)",
        ),
        ({"shard": (0, 3)}, "--shard 0/3: expected I/N with 1 <= I <= N"),
        ({"shard": (4, 3)}, "--shard 4/3: expected I/N with 1 <= I <= N"),
        ({"shard": (1, 0)}, "--shard 1/0: expected I/N with 1 <= I <= N"),
    ],
)
def test_what_is_refused(plan: Plan, parts: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.plan.specs.PROVIDERS", {"reference": ""})
    with pytest.raises(SelectionError) as caught:
        select(plan, Selection(**parts))
    assert str(caught.value) == message


def test_parts_compose(plan: Plan) -> None:
    chosen = select(
        plan, Selection(select={"nesting": ["flat"]}, keyword="delayed and not emulate", providers=("reference",))
    )
    assert {cell.axes.nesting for cell in chosen} == {"flat"}
    assert {cell.axes.recipe.name for cell in chosen} == {DELAYED}
    assert all(not cell.axes.provider.fields for cell in chosen)
    assert len(chosen) == 6


def test_last_failed_keeps_what_the_plan_still_has(plan: Plan) -> None:
    failed = frozenset({plan.cells[3].id, "gone[provider=reference,recipe=x]"})
    assert select(plan, Selection(last_failed=failed)) == (plan.cells[3],)
    assert count(plan, last_failed=frozenset()) == 0
    assert count(plan, last_failed=None) == len(plan.cells)


@settings(deadline=None, max_examples=40)
@given(matrices(), st.integers(1, 9), st.one_of(st.none(), st.integers(0, 99)))
def test_shards_are_a_partition(data: dict[str, Any], parts: int, seed: int | None) -> None:
    plan = as_matrix(data).full
    shards = [select(plan, Selection(shard=(index, parts), shuffle=seed)) for index in range(1, parts + 1)]
    ids = [cell.id for shard in shards for cell in shard]
    assert sorted(ids) == sorted(cell.id for cell in plan.cells)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_shuffling_changes_the_order_alone_and_repeats(plan: Plan) -> None:
    once, again = (select(plan, Selection(shuffle=7)) for _ in range(2))
    other = select(plan, Selection(shuffle=8))
    assert once == again != other
    assert once != plan.cells
    assert {cell.id for cell in once} == {cell.id for cell in plan.cells}


def test_why_nothing_is_left(plan: Plan) -> None:
    assert why_nothing(plan, Selection(select={"arch": ["sm90"]})) == "no cell has arch sm90; there is host"
    both = Selection(select={"shape": ["64x128x128"], "nesting": ["nested"]})
    assert why_nothing(plan, both) == "no cell meets all of the conditions"


def test_a_selection_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Selection().keyword = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a(x=1,y=2),b", ["a(x=1,y=2)", "b"]),
        ("a,b(x=1,y=2)", ["a", "b(x=1,y=2)"]),
    ],
)
def test_commas_in_parentheses_belong_to_the_value(text: str, values: list[str]) -> None:
    assert split_values(text) == values
