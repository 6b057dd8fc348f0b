"""Specs become Transformer Engine's own recipes or are refused in words, and no two recipes share a key."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.providers import te_recipes, te_stack
from harness.providers.te_key import TERecipeKey
from harness.types import RECIPES, Scalar, Spec
from tests.support.te import forget, install

# A value other than the default for every field that the provider sets.
OTHERS: dict[str, dict[str, Scalar]] = {
    "delayed_scaling": {"margin": 1, "fp8_format": "E4M3", "amax_history_len": 4, "amax_compute_algo": "most_recent"},
    "float8_current_scaling": {"fp8_format": "E4M3", "power_2_scale": True, "amax_epsilon": 0.5},
    "float8_block_scaling": {"fp8_format": "HYBRID", "use_f32_scales": True, "amax_epsilon": 0.5},
    "mxfp8_block_scaling": {"fp8_format": "HYBRID"},
    "nvfp4_block_scaling": {
        "disable_rht": False,
        "disable_stochastic_rounding": False,
        "disable_2d_quantization": True,
    },
}
ONE_FIELD = [(name, field) for name, fields in OTHERS.items() for field in fields]


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    install(monkeypatch, tmp_path)
    yield
    forget()


def spec(name: str, **fields: Scalar) -> Spec:
    return Spec(name, tuple(sorted(fields.items())))


@pytest.mark.parametrize(("name", "field"), ONE_FIELD)
def test_every_field_arrives(name: str, field: str) -> None:
    value = OTHERS[name][field]
    recipe = te_recipes.make(spec(name, **{field: value}))
    if field in ("power_2_scale", "amax_epsilon"):
        roles = (recipe.fp8_quant_fwd_inp, recipe.fp8_quant_fwd_weight, recipe.fp8_quant_bwd_grad)
        assert [getattr(role, field) for role in roles] == [value] * 3
    else:
        held = getattr(recipe, field)
        assert getattr(held, "name", held) == value


@pytest.mark.parametrize(("name", "field"), ONE_FIELD)
def test_keys_differ_in_any_field(name: str, field: str) -> None:
    plain, other = te_recipes.make(spec(name)), te_recipes.make(spec(name, **{field: OTHERS[name][field]}))
    keys = [TERecipeKey(te_recipes.text_of(recipe)) for recipe in (plain, other)]
    assert keys[0] != keys[1]
    assert keys[0] == TERecipeKey(te_recipes.text_of(te_recipes.make(spec(name))))
    assert hash(keys[0]) == hash(TERecipeKey(te_recipes.text_of(te_recipes.make(spec(name)))))
    assert keys[0] != keys[0].text


def test_keys_of_different_recipes_differ() -> None:
    texts = [te_recipes.text_of(te_recipes.make(Spec(name))) for name in OTHERS]
    assert len(set(texts)) == len(texts)


def test_a_key_is_rebuilt_from_its_source_text() -> None:
    key = TERecipeKey("a 'text', with\nlines")
    source, names = key.__fx_repr__()
    assert eval(source, dict(names)) == key


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (spec("float8_rowwise_scaling"), "Transformer Engine has no recipe for float8_rowwise_scaling"),
        (spec("nonsense"), "has no recipe for nonsense"),
        (spec("delayed_scaling", power_2_scale=True), "DelayedScaling has no field 'power_2_scale'; .* margin"),
        (spec("float8_current_scaling", fp8_format="E5M2"), "fp8_format is one of E4M3, HYBRID, not 'E5M2'"),
        (spec("mxfp8_block_scaling", scale_rounding="floor"), "scale_rounding ceil only, not 'floor'"),
        (spec("delayed_scaling", amax_history_len=0), r"refuses delayed_scaling\(amax_history_len=0\): no history"),
    ],
)
def test_what_it_has_not_is_a_value_error(bad: Spec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        te_recipes.make(bad)


def test_a_recipe_class_that_a_version_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(te_stack.module("common.recipe"), "NVFP4BlockScaling")
    assert te_recipes.offered("nvfp4_block_scaling") == "this Transformer Engine has no NVFP4BlockScaling"
    with pytest.raises(ValueError, match="has no NVFP4BlockScaling"):
        te_recipes.make(Spec("nvfp4_block_scaling"))


def test_nvfp4_is_without_random_numbers_unless_they_are_asked_for() -> None:
    plain = te_recipes.make(Spec("nvfp4_block_scaling"))
    asked = te_recipes.make(spec("nvfp4_block_scaling", disable_rht=False))
    assert (plain.disable_rht, plain.disable_stochastic_rounding) == (True, True)
    assert (asked.disable_rht, asked.disable_stochastic_rounding) == (False, True)


def test_equal_specs_give_equal_recipes_and_never_the_same() -> None:
    for name in OTHERS:
        one, two = te_recipes.make(Spec(name)), te_recipes.make(Spec(name))
        assert one is not two
        assert te_recipes.text_of(one) == te_recipes.text_of(two)


def test_an_operator_finds_the_recipe_of_its_text_under_its_label() -> None:
    wanted = spec("float8_current_scaling", amax_epsilon=0.5)
    te_recipes.remember(wanted)
    found = te_recipes.known(te_recipes.text_of(te_recipes.make(wanted)))
    assert found.label == "float8_current_scaling(amax_epsilon=0.5)"
    assert found.recipe.fp8_quant_fwd_inp.amax_epsilon == 0.5


def test_a_recipe_made_by_hand_is_found_by_its_kind() -> None:
    recipe = te_stack.module("common.recipe").Float8CurrentScaling()
    text = te_recipes.note(recipe)
    assert (te_recipes.known(text).recipe, te_recipes.known(text).label) == (recipe, "float8_current_scaling")


def test_a_recipe_that_nobody_has_seen_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no provider made: strange"):
        te_recipes.known("strange")


def test_fields_are_those_of_the_plan() -> None:
    """A field that a matrix may write is either set, refused in words, or unknown to Transformer Engine's class."""
    from harness.plan.recipes import RECIPE_MODELS

    for name in set(RECIPES) & set(te_recipes.KINDS):
        planned = set(RECIPE_MODELS[name].model_fields) - {"name"}
        assert planned == set(te_recipes.KINDS[name].fields), name
    assert set(itertools.chain(OTHERS)) == set(te_recipes.KINDS)


@pytest.mark.parametrize(("name", "field"), [item for item in ONE_FIELD if item[0] != "delayed_scaling"])
def test_compiled_code_guards_on_every_field(name: str, field: str) -> None:
    """Dynamo folds ``str()`` of an object without a guard (torch 2.11, 2.13): a second recipe would get the first's."""
    seen: list[str] = []

    def tell(recipe: object, x: torch.Tensor) -> torch.Tensor:
        seen.append(te_recipes.text_of(recipe))
        return x + 1

    torch._dynamo.reset()
    compiled = torch.compile(tell, backend="eager", fullgraph=True)
    specs = [spec(name), spec(name, **{field: OTHERS[name][field]}), spec(name)]
    for each in specs:
        compiled(te_recipes.make(each), torch.ones(1))
    assert seen == [te_recipes.text_of(te_recipes.make(each)) for each in specs]
    assert seen[0] == seen[2] != seen[1]


def test_keys_hold_the_library_s_own_register_key() -> None:
    recipe = te_recipes.make(spec("float8_current_scaling"))
    assert te_recipes.keys_of(recipe) == (te_recipes.text_of(recipe), f"{recipe}:None")
