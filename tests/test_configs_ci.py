"""What configs/ci.yaml promises: sixty cells, DelayedScaling refused, a few of inductor and of other data."""

from __future__ import annotations

import itertools

from harness.plan import load_matrix
from harness.types import NESTINGS, RECIPES, Cell

PLAN = load_matrix("ci.yaml").full


def cells(**axes: object) -> list[Cell]:
    return [cell for cell in PLAN.cells if all(getattr(cell.axes, axis) == value for axis, value in axes.items())]


def test_sixty_cells_of_aot_eager() -> None:
    grid = cells(backend="aot_eager", data="normal")
    seen = [(cell.axes.recipe.name, cell.axes.fullgraph, cell.axes.nesting) for cell in grid]
    assert sorted(seen) == sorted(itertools.product(RECIPES, (False, True), NESTINGS))
    assert len(grid) == 60
    assert PLAN.require == "emulated"


def test_delayed_scaling_alone_must_refuse() -> None:
    for cell in PLAN.cells:
        raises = cell.expect.raises
        if cell.axes.recipe.name == "delayed_scaling":
            assert raises is not None
            assert (raises.type, raises.phase) == ("RuntimeError", "compile")
            assert raises.match == "not supported under torch.compile"
            assert cell.axes.recipe.as_dict() == {"amax_history_len": 16}
        else:
            assert raises is None


def test_a_few_cells_of_inductor_and_of_other_data() -> None:
    inductor = cells(backend="inductor")
    assert {(cell.axes.recipe.name, cell.axes.nesting, cell.axes.fullgraph) for cell in inductor} == {
        ("float8_current_scaling", "nested", True),
        ("float8_block_scaling", "nested", True),
    }
    assert len(cells(data="positive")) == len(cells(data="heavy_tailed")) == 2


def test_the_shape_suits_every_recipe() -> None:
    """Multiples of 128: block scaling's, the largest (docs/matrix.md)."""
    assert {size % 128 for cell in PLAN.cells for size in cell.axes.shape} == {0}
