"""What configs/l0.yaml, l1.yaml and l2.yaml promise of the registered cases: a new case without its lines is named."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from cases import CASES
from harness.plan import load_matrix
from harness.types import BACKENDS, DATA_KINDS, DTYPES, Cell

ROOT = Path(__file__).resolve().parents[1]
LEVELS = {name: load_matrix(ROOT / "configs" / f"{name}.yaml").full for name in ("l0", "l1", "l2")}
# On two idle cores a cell takes 0.3 to 1 s (docs/benchmarks.md), so that this many are five minutes at most.
IN_FIVE_MINUTES = 400
# What torch does depends on no recipe and no backend: one cell says it all.
WHOLE = ("canary",)
# Whose program is the user's: an example stands for it.
EXAMPLE = ("target",)


def of(level: str, **axes: object) -> list[Cell]:
    return [c for c in LEVELS[level].cells if all(_value(c, axis) == value for axis, value in axes.items())]


def _value(cell: Cell, axis: str) -> object:
    value = getattr(cell.axes, axis)
    return value.name if axis in ("recipe", "provider") else value


def seen(cells: Iterable[Cell], *axes: str) -> set[tuple[object, ...]]:
    return {tuple(_value(cell, axis) for axis in axes) for cell in cells}


def programs(*, recipes: bool) -> set[tuple[str, ...]]:
    """Case and variant of every registered program, with each recipe that it takes."""
    found: set[tuple[str, ...]] = set()
    for name, entry in CASES.items():
        if name not in EXAMPLE:
            taken = [(name, variant) for variant in entry.variants or ("",)]
            found |= {(*program, recipe) if recipes else program for program in taken for recipe in entry.recipes}
    return found


def lacking(wanted: set[tuple[str, ...]], cells: Iterable[Cell], *axes: str) -> list[tuple[str, ...]]:
    return sorted(wanted - {tuple(map(str, value)) for value in seen(cells, *axes)})


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_plans_and_demands_what_it_can_have(level: str) -> None:
    plan = LEVELS[level]
    assert plan.cells
    assert plan.require == "emulated"
    assert {size % 16 for cell in plan.cells for size in cell.axes.shape} == {0}


def test_l0_has_every_case_on_both_of_its_backends() -> None:
    assert seen(of("l0"), "case") == {(name,) for name in CASES}
    assert seen(of("l0"), "backend") == {("eager",), ("aot_eager",)}
    for backend in ("eager", "aot_eager"):
        named = {program for program in programs(recipes=False) if program[0] not in WHOLE}
        assert lacking(named, of("l0", backend=backend), "case", "variant") == []


def test_the_example_and_the_canary_are_everywhere_once() -> None:
    assert len(of("l0", case="canary")) == len(of("l2", case="canary")) == ("canary" in CASES)
    if "target" in CASES:
        assert {len(seen(of(level, case="target"), "target")) for level in LEVELS} == {1, 2}


def test_l0_is_quick() -> None:
    assert len(LEVELS["l0"].cells) <= IN_FIVE_MINUTES
    assert {cell.axes.provider.name for cell in LEVELS["l0"].cells} == {"reference"}


def test_l0_has_every_recipe_of_every_case() -> None:
    wanted = {
        (name, recipe) for name, entry in CASES.items() for recipe in entry.recipes if name not in EXAMPLE + WHOLE
    }
    assert lacking(wanted, of("l0"), "case", "recipe") == []


def test_l1_has_every_program_under_inductor_and_without_fullgraph() -> None:
    here = {program for program in programs(recipes=False) if program[0] not in (*WHOLE, "toy_linear")}
    compiled = {program for program in here if program[0] not in ("delayed_scaling", "unsupported_recipe")}
    assert lacking(compiled, of("l1", backend="inductor"), "case", "variant") == []
    without = here - {("unsupported_recipe", "")}
    for backend in ("eager", "aot_eager"):
        assert lacking(without, of("l1", backend=backend, fullgraph=False), "case", "variant") == []


@pytest.mark.parametrize("case", ["checkpoint", "multi_step", "dynamic_shapes"])
def test_l1_has_every_recipe_where_it_promises_to(case: str) -> None:
    if case in CASES:
        wanted = {program for program in programs(recipes=True) if program[0] == case}
        assert lacking(wanted, [*of("l0", case=case), *of("l1", case=case)], "case", "variant", "recipe") == []
    assert seen(of("l1", dynamic=True), "case") >= {("toy_linear",), ("dynamic_shapes",), ("multi_step",)}


def test_l2_crosses_everything() -> None:
    wanted = {program for program in programs(recipes=True) if program[0] not in WHOLE}
    for fullgraph, backend in itertools.product((True, False), BACKENDS):
        cells = of("l2", provider="reference", fullgraph=fullgraph, backend=backend, arch="host")
        assert lacking(wanted, cells, "case", "variant", "recipe") == []
    crossed = {program for program in wanted if program[0] != "delayed_scaling"}
    for axis, values in (("data", DATA_KINDS), ("dtype", DTYPES)):
        for value in values:
            assert lacking(crossed, of("l2", **{axis: value}), "case", "variant", "recipe") == []
    assert lacking(wanted, of("l2", arch="sm100"), "case", "variant", "recipe") == []


def test_l2_has_transformer_engine_in_whatever_it_has_a_recipe_for() -> None:
    wanted = {one for one in programs(recipes=True) if one[0] not in WHOLE and one[2] != "float8_rowwise_scaling"}
    cells = of("l2", provider="transformer_engine")
    assert lacking(wanted, cells, "case", "variant", "recipe") == []
    assert "float8_rowwise_scaling" not in {cell.axes.recipe.name for cell in cells}


@pytest.mark.parametrize("level", LEVELS)
def test_delayed_scaling_alone_must_refuse(level: str) -> None:
    for cell in LEVELS[level].cells:
        if cell.expect.raises is not None:
            assert cell.axes.recipe.name == "delayed_scaling"
            assert cell.expect.raises.match == "not supported under torch.compile"
        elif cell.axes.case == "toy_linear":
            assert cell.axes.recipe.name != "delayed_scaling"


def test_what_is_missing_is_named() -> None:
    cells = [cell for cell in of("l0") if cell.axes.case != "multi_step"]
    assert lacking({("multi_step",), ("stack",)}, cells, "case") == [("multi_step",)]
