"""Recipes: equal by value, one key per value, labels as a user would write them, named errors."""

from __future__ import annotations

import dataclasses

import pytest

from harness import fp8
from harness.fp8.recipe import RECIPE_CLASSES, label_of, make_recipe, recipe_from_key
from harness.types import RECIPES
from tests.support.fp8 import OTHER_FIELDS


def test_every_recipe_of_the_matrix_exists() -> None:
    assert set(RECIPE_CLASSES) == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_equal_but_new_objects_share_their_key(name: str) -> None:
    first, second = RECIPE_CLASSES[name](), RECIPE_CLASSES[name]()
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)
    assert first.key == second.key


@pytest.mark.parametrize(("cls", "field", "value"), OTHER_FIELDS)
def test_any_field_changes_the_key(cls: type, field: str, value: object) -> None:
    changed = cls(**{field: value})
    assert changed != cls()
    assert changed.key != cls().key
    assert recipe_from_key(changed.key) == changed


def test_every_field_is_covered_by_the_list_of_other_values() -> None:
    refused = {(fp8.NVFP4BlockScaling, "disable_rht"), (fp8.NVFP4BlockScaling, "disable_stochastic_rounding")}
    fields = {(cls, item.name) for cls in RECIPE_CLASSES.values() for item in dataclasses.fields(cls) if item.init}
    assert fields == {(cls, field) for cls, field, _ in OTHER_FIELDS} | refused


def test_keys_of_different_recipes_differ() -> None:
    assert len({cls().key for cls in RECIPE_CLASSES.values()}) == len(RECIPE_CLASSES)


def test_label_holds_only_what_differs_from_the_default() -> None:
    assert label_of(fp8.DelayedScaling()) == "delayed_scaling"
    several = fp8.DelayedScaling(margin=1, amax_history_len=16)
    assert label_of(several) == "delayed_scaling(amax_history_len=16,margin=1)"
    assert label_of(fp8.Float8CurrentScaling(power_2_scale=True)) == "float8_current_scaling(power_2_scale=true)"
    assert label_of(fp8.MXFP8BlockScaling(fp8_format=fp8.Format.HYBRID)) == "mxfp8_block_scaling(fp8_format=HYBRID)"


def test_formats_may_be_given_by_name() -> None:
    assert fp8.Float8CurrentScaling(fp8_format="E4M3") == fp8.Float8CurrentScaling(fp8_format=fp8.Format.E4M3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("delayed_scalin", {}, "unknown recipe"),
        ("delayed_scaling", {"margins": 1}, "no field 'margins'"),
        ("delayed_scaling", {"amax_history_len": 0}, "amax_history_len"),
        ("delayed_scaling", {"amax_history_len": 2.5}, "amax_history_len must be an integer of at least 1, got 2.5"),
        ("delayed_scaling", {"amax_history_len": True}, "amax_history_len"),
        ("delayed_scaling", {"margin": 0.5}, "margin must be an integer, got 0.5"),
        ("delayed_scaling", {"amax_compute_algo": "mean"}, "amax_compute_algo"),
        ("float8_current_scaling", {"fp8_format": "E5M2"}, "fp8_format"),
        ("float8_current_scaling", {"power_2_scale": "yes"}, "power_2_scale"),
        ("float8_current_scaling", {"amax_epsilon": -1.0}, "amax_epsilon"),
        ("float8_current_scaling", {"amax_epsilon": float("nan")}, "amax_epsilon"),
        ("mxfp8_block_scaling", {"scale_rounding": "nearest"}, "scale_rounding"),
        ("nvfp4_block_scaling", {"disable_rht": False}, "disable_rht"),
        ("nvfp4_block_scaling", {"disable_stochastic_rounding": False}, "disable_stochastic_rounding"),
        ("nvfp4_block_scaling", {"disable_2d_quantization": 1}, "disable_2d_quantization"),
    ],
)
def test_bad_fields_are_named(name: str, values: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make_recipe(name, values)
