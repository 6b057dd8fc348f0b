"""Ids: unique, stable, readable back, and safe for pytest and for shells' word splitting."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import CASES
from harness.faults import FAULTS
from harness.plan import SelectionError, axes_from_id, cell_id, parse_id
from harness.plan.axes import AXES, SCHEMA_DEFAULTS, AxisChoices, AxisLists, AxisPattern, AxisValues
from harness.plan.ids import inner_of
from harness.plan.recipes import RECIPE_MODELS
from harness.providers import PROVIDERS
from harness.types import PARTNERS, RECIPES, Axes, Spec
from tests.support.fake_cases import fake_cases
from tests.support.plan_strategies import as_matrix, case_entries, matrices

CURRENT = Spec("float8_current_scaling")


def axes(**values: Any) -> Axes:
    return Axes(**{"case": "toy_linear", "provider": Spec("reference"), "recipe": CURRENT, **values})


def test_only_what_differs_from_the_schema_stands_in_an_id() -> None:
    assert cell_id(axes()) == "toy_linear[provider=reference,recipe=float8_current_scaling]"


def test_settings_stand_in_schema_order_with_the_partner_after_the_nesting() -> None:
    everything = axes(
        provider=Spec("reference+leaky_exit", (("emulate", False),)),
        recipe=Spec("delayed_scaling", (("amax_history_len", 16), ("margin", 1))),
        arch="sm90",
        fullgraph=False,
        nesting="deep",
        backend="inductor",
        dtype="float32",
        shape=(64, 128, 256),
        data="positive",
        dynamic=True,
        seed=7,
    )
    assert cell_id(everything) == (
        "toy_linear[provider=reference+leaky_exit(emulate=false),recipe=delayed_scaling(amax_history_len=16,margin=1),"
        "arch=sm90,fullgraph=false,nesting=deep,inner=float8_current_scaling,backend=inductor,dtype=float32,"
        "shape=64x128x256,data=positive,dynamic=true,seed=7]"
    )


@pytest.mark.parametrize("nesting", ["nested", "deep", "sequential"])
def test_the_partner_is_the_tables(nesting: str) -> None:
    assert inner_of(axes(nesting=nesting)) == Spec(PARTNERS["float8_current_scaling"])


@pytest.mark.parametrize("nesting", ["flat", "nested_disabled"])
def test_one_recipe_has_no_partner(nesting: str) -> None:
    assert inner_of(axes(nesting=nesting)) is None
    assert "inner" not in cell_id(axes(nesting=nesting))


@settings(deadline=None, max_examples=60)
@given(matrices())
def test_ids_are_unique_and_read_back(data: dict[str, Any]) -> None:
    cells = as_matrix(data).full.cells
    ids = [cell.id for cell in cells]
    assert len(set(ids)) == len(ids)
    for cell in cells:
        assert axes_from_id(cell.id) == cell.axes
        assert not any(character.isspace() for character in cell.id)
        assert "::" not in cell.id


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_ids_of_variants_targets_and_pairs_are_unique_and_read_back(draw: st.DataObject) -> None:
    with fake_cases():
        entries = draw.draw(st.lists(case_entries(), min_size=1, max_size=4))
        cells = [as_matrix({"schema_version": 1, "include": [entry]}).full.cells for entry in entries]
        by_id = {cell.id: cell.axes for (cell,) in cells}
        assert len(by_id) == len(set(by_id.values()))
        for (cell,) in cells:
            assert axes_from_id(cell.id) == cell.axes
            settings_of = parse_id(cell.id)
            assert settings_of.get("inner") == (cell.inner.label if cell.inner else None)
            assert settings_of.get("variant", "") == cell.axes.variant
            assert settings_of.get("target", "") == cell.axes.target
            assert not any(character.isspace() for character in cell.id)
            assert "::" not in cell.id


def test_a_variant_or_a_case_with_two_recipes_has_its_partner_in_the_id() -> None:
    inner = "inner=float8_block_scaling"
    with fake_cases():
        assert cell_id(axes(case="recipe_switch")).endswith(f"recipe=float8_current_scaling,{inner}]")
        assert cell_id(axes(case="checkpoint", variant="around")).endswith(f",{inner},variant=around]")
        assert cell_id(axes(case="checkpoint", variant="around", nesting="nested")).count(inner) == 1
        assert inner_of(axes(case="checkpoint", variant="reentrant")) is None
        assert inner_of(axes(case="amax_edges", variant="zeros")) is None


def test_parsed_ids_hold_what_they_say() -> None:
    text = "toy_linear[provider=reference,recipe=delayed_scaling(amax_history_len=16,margin=1),nesting=flat]"
    assert parse_id(text) == {
        "case": "toy_linear",
        "provider": "reference",
        "recipe": "delayed_scaling(amax_history_len=16,margin=1)",
        "nesting": "flat",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a cell id: ''; an id is case[provider=…,recipe=…,axis=value,…]"),
        ("toy_linear", "not a cell id: 'toy_linear'; an id is case[provider=…,recipe=…,axis=value,…]"),
        ("toy_linear[]", "not a cell id: 'toy_linear[]'; an id is case[provider=…,recipe=…,axis=value,…]"),
        ("t[seed]", "not a cell id: 't[seed]'; 'seed' is no setting, or one too many"),
        ("t[seed=1,seed=1]", "not a cell id: 't[seed=1,seed=1]'; 'seed=1' is no setting, or one too many"),
    ],
)
def test_what_is_no_id(text: str, message: str) -> None:
    with pytest.raises(SelectionError) as caught:
        parse_id(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("toy_linear[provider=reference]", "it names no recipe"),
        ("toy_linear[provider=reference,recipe=mxfp8]", "unknown recipe 'mxfp8' (did you mean mxfp8_block_scaling?)"),
        ("toy_linear[recipe=float8_current_scaling,sed=1]", "unknown axis 'sed' (did you mean seed?)"),
        (
            "toy_linear[provider=reference,recipe=float8_current_scaling,seed=0]",
            "(did you mean toy_linear[provider=reference,recipe=float8_current_scaling]?)",
        ),
        (
            "toy_linear[provider=reference,recipe=float8_current_scaling,nesting=nested,inner=mxfp8_block_scaling]",
            "nesting=nested,inner=float8_block_scaling]?)",
        ),
        (
            "checkpoint[provider=reference,recipe=float8_current_scaling,variant=reentrent]",
            "cell id variant=reentrent: unknown variant 'reentrent' (did you mean reentrant?)",
        ),
        (
            "toy_linear[provider=reference,recipe=float8_current_scaling,variant=reentrant]",
            "case 'toy_linear' has no variants, so none can be named",
        ),
        (
            "checkpoint[provider=reference,recipe=float8_current_scaling,variant=around]",
            "(did you mean checkpoint[provider=reference,recipe=float8_current_scaling,inner=float8_block_scaling,"
            "variant=around]?)",
        ),
        (
            "target[provider=reference,recipe=float8_current_scaling,target=a/b.py:build]",
            "cell id target=a/b.py:build: expected package.module:attribute, got 'a/b.py:build'",
        ),
    ],
    ids=[
        *("no recipe", "unknown recipe", "unknown axis", "a default written out", "another partner"),
        *("unknown variant", "no variants", "no partner", "malformed target"),
    ],
)
def test_only_the_one_spelling_is_an_id(text: str, message: str) -> None:
    with fake_cases(), pytest.raises(SelectionError) as caught:
        axes_from_id(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("registry", [CASES, PROVIDERS, FAULTS], ids=["cases", "providers", "faults"])
def test_registered_names_can_stand_in_ids(registry: dict[str, object]) -> None:
    assert [name for name in registry if not name.replace("_", "").isalnum() or not name.isascii()] == []


def test_the_models_of_the_axes_and_the_shared_type_agree() -> None:
    names = [field.name for field in dataclasses.fields(Axes)]
    for model in (AxisValues, AxisChoices, AxisLists, AxisPattern):
        assert list(model.model_fields) == names
    assert list(AXES) == names
    assert set(names) - set(SCHEMA_DEFAULTS) == {"recipe"}
    assert SCHEMA_DEFAULTS["shape"] == Axes("c", Spec("p"), Spec("r")).shape


def test_every_recipe_has_fields_and_a_partner() -> None:
    assert tuple(RECIPE_MODELS) == RECIPES
    assert set(PARTNERS) == set(RECIPES)
    assert all(PARTNERS[name] != name for name in RECIPES)
