from __future__ import annotations

from pathlib import Path

import pytest

from harness.plan import load_matrix
from harness.run.plan_file import MATRIX_COPY, Round, RunPlan, read_plan, read_round, write_plan, write_round
from harness.types import Budgets, Expectation, Raises, Spec, Waiver
from tests.support.baselines import HERE, entry, use
from tests.support.cells import cell, plan

CONFIGS = Path(__file__).parents[1] / "configs"


def stored(tmp_path: Path, made: RunPlan) -> RunPlan:
    path = tmp_path / "plan.json"
    write_plan(path, made)
    return read_plan(path)


def test_everything_in_a_cell_comes_back(tmp_path: Path) -> None:
    matrix = tmp_path / "m.yaml"
    matrix.write_text("schema_version: 1\n")
    expect = Expectation(
        Budgets(graph_breaks=2, recompiles=None),
        Raises("RuntimeError", "not supported"),
        (Waiver("xfail", "r", "u", "o", "2027-01-01", (("torch", ">=2.11"),), "w:1", (("arch", ("sm90", "cpu")),)),),
    )
    rich = cell(0, expect=expect, shape=(64, 128, 128), dynamic=True)
    rich = type(rich)(rich.id, rich.axes, Spec("mxfp8_block_scaling", (("margin", 1),)), expect, {"seed": "m.yaml:3:5"})
    made = plan(1, matrix=matrix, cells=(rich,), maxfail=3, command=("python", "runner.py"), env={"A": "1"})
    assert stored(tmp_path, made) == made


def test_a_baseline_comes_back(tmp_path: Path) -> None:
    matrix = tmp_path / "m.yaml"
    matrix.write_text("schema_version: 1\n")
    limited = cell(0, expect=Expectation(baseline=Budgets(graphs=2, eager_frames=None)))
    baseline = use(entry(0), entry(1, graphs=None, environment=HERE), gone=(entry(1).id,), why="--set")
    made = plan(1, matrix=matrix, cells=(limited,), baseline=baseline)
    assert stored(tmp_path, made) == made


def test_a_real_matrix_comes_back(tmp_path: Path) -> None:
    matrix = load_matrix(CONFIGS / "ci.yaml")
    made = plan(0, matrix=matrix.path, cells=matrix.full.cells)
    assert stored(tmp_path, made).cells == matrix.full.cells


def test_the_matrix_is_kept_as_it_was(tmp_path: Path) -> None:
    matrix = tmp_path / "m.yaml"
    matrix.write_text("schema_version: 1\n")
    write_plan(tmp_path / "plan.json", plan(1, matrix=matrix))
    matrix.write_text("edited")
    assert (tmp_path / MATRIX_COPY).read_text() == "schema_version: 1\n"


def test_rounds_come_back(tmp_path: Path) -> None:
    write_round(tmp_path / "2.json", Round(2, ("a", "b"), attempt=2))
    assert read_round(tmp_path / "2.json") == Round(2, ("a", "b"), attempt=2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"number": 1, "ids": 3}'])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError):
        read_plan(path)
    with pytest.raises(ValueError):
        read_round(path)
