"""What configs/nightly.yaml promises: both providers in the same programs, on both backends, three shapes and data."""

from __future__ import annotations

import itertools

import pytest

from harness.plan import load_matrix
from harness.types import DATA_KINDS, NESTINGS, RECIPES, Cell

PLAN = load_matrix("nightly.yaml").full
SHAPES = ((128, 256, 128), (256, 128, 384), (512, 1024, 256))
HERE = [cell for cell in PLAN.cells if cell.axes.arch == "host"]


def cells(**axes: object) -> list[Cell]:
    return [cell for cell in HERE if all(getattr(cell.axes, axis) == value for axis, value in axes.items())]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["reference", "transformer_engine"])
def test_every_nesting_of_every_recipe_with_and_without_fullgraph(name: str, backend: str) -> None:
    offered = set(RECIPES) - ({"float8_rowwise_scaling"} if name == "transformer_engine" else set())
    if (name, backend) == ("transformer_engine", "inductor"):
        offered -= {"mxfp8_block_scaling", "nvfp4_block_scaling"}  # refused on sm_90 whatever the backend
    grid = cells(backend=backend, data="normal", shape=SHAPES[0])
    seen = {
        (cell.axes.recipe.name, cell.axes.fullgraph, cell.axes.nesting)
        for cell in grid
        if cell.axes.provider.name == name
    }
    assert seen == set(itertools.product(offered, (False, True), NESTINGS))


@pytest.mark.parametrize("recipe", ["float8_current_scaling", "float8_block_scaling", "delayed_scaling"])
@pytest.mark.parametrize("name", ["reference", "transformer_engine"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_every_shape_meets_every_kind_of_data_on_both(backend: str, name: str, recipe: str) -> None:
    chosen = [c for c in cells(backend=backend) if (c.axes.provider.name, c.axes.recipe.name) == (name, recipe)]
    assert {(c.axes.shape, c.axes.data) for c in chosen} == set(itertools.product(SHAPES, DATA_KINDS))


def test_transformer_engine_and_the_reference_run_the_same_programs() -> None:
    """Whatever Transformer Engine runs in the grid, the reference runs too: a red of one alone is that one's."""
    grid = [cell for cell in HERE if cell.axes.dtype == "bfloat16" and cell.axes.seed == 0]
    reference = {_program(cell) for cell in grid if cell.axes.provider.name == "reference"}
    others = {_program(cell) for cell in grid if cell.axes.provider.name != "reference"}
    plain = {program for program in others if program[0] in {r[0] for r in reference}}
    assert plain <= reference
    assert len(plain) > 100


def _program(cell: Cell) -> tuple[object, ...]:
    axes = cell.axes
    return axes.recipe.label, axes.fullgraph, axes.nesting, axes.backend, axes.shape, axes.data


def test_it_is_sized_for_a_night_and_not_for_a_day() -> None:
    assert 300 < len(PLAN.cells) < 500
    assert sum(cell.axes.backend == "inductor" for cell in PLAN.cells) < 200
    assert PLAN.require == "emulated"


def test_shapes_suit_every_recipe() -> None:
    assert {size % 128 for cell in PLAN.cells for size in cell.axes.shape} == {0}


def test_delayed_scaling_must_refuse_on_both() -> None:
    for cell in PLAN.cells:
        assert (cell.expect.raises is not None) == (cell.axes.recipe.name == "delayed_scaling")
