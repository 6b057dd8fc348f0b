"""From a selftest file to faults in cells and the cells without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.faults import FAULTS, FRONT_FAULTS
from harness.plan.errors import MatrixErrors
from harness.registry import LoadError
from harness.selftest.plan import Selftest, plan_selftest

OWN = """
from contextlib import nullcontext
from harness.faults.fault import Fault
FAULT = Fault("anything", "nothing at all", "state.unchanged", nullcontext, where={where})
"""


def plan(tmp_path: Path, text: str, only: tuple[str, ...] = ()) -> Selftest:
    path = tmp_path / "own.yaml"
    path.write_text("schema_version: 1\n" + text)
    return plan_selftest(path, only)


def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str = "{}") -> str:
    """A module ``name`` with a fault that a user wrote; the fault's import path."""
    (tmp_path / f"{name}.py").write_text(OWN.format(where=where))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop(name, None)
    return f"{name}:FAULT"


def test_every_registered_fault_has_its_cell_and_the_dangerous_ones_come_first() -> None:
    selftest = plan_selftest("selftest.yaml")
    assert {one.fault for one in selftest.seeded} == set(FAULTS)
    assert [one.name for one in selftest.front] == sorted(FRONT_FAULTS)
    ids = [cell.id for cell in selftest.cells]
    assert len(ids) == len(set(ids))
    assert {one.cell.id for one in selftest.seeded} | {one.twin.id for one in selftest.seeded} == set(ids)
    deadly = {one.cell.id for one in selftest.seeded if one.caught_by.startswith("run.")}
    assert set(ids[: 2 * len(deadly)]) >= deadly
    for one in selftest.seeded:
        assert one.cell.id == one.twin.id.replace(one.twin.axes.provider.name, one.cell.axes.provider.name, 1)


def test_cross_adds_cells_of_the_same_fault(tmp_path: Path) -> None:
    text = "faults: [leaky_exit]\ncross:\n  - {fault: leaky_exit, nesting: [flat, deep], backend: eager}\n"
    seeded = plan(tmp_path, text).seeded
    assert [(one.cell.axes.nesting, one.cell.axes.backend) for one in seeded] == [
        ("nested", "aot_eager"),
        ("flat", "eager"),
        ("deep", "eager"),
    ]
    assert {one.caught_by for one in seeded} == {"state.unchanged"}


def test_cross_may_name_another_check_and_recipes_with_fields(tmp_path: Path) -> None:
    recipe = "{name: delayed_scaling, amax_history_len: 4}"
    text = (
        "faults: [scale_doubled]\ncross:\n"
        f"  - {{fault: scale_doubled, case: delayed_scaling, variant: inside, recipe: {recipe}, "
        "caught_by: numerics.x}\n"
        "  - {fault: scale_doubled, provider: {name: reference, emulate: false}, shape: [[128, 128, 128]]}\n"
    )
    first, crossed, other = plan(tmp_path, text).seeded
    assert (first.caught_by, crossed.caught_by) == ("numerics.scales", "numerics.x")
    assert crossed.cell.axes.recipe.label == "delayed_scaling(amax_history_len=4)"
    assert other.cell.axes.provider.label == "reference+scale_doubled(emulate=false)"
    assert other.cell.axes.shape == (128, 128, 128)


def test_a_cell_that_no_case_has_is_told_at_its_entry(tmp_path: Path) -> None:
    text = "faults: all\ncross:\n  - {fault: leaky_exit, case: hoisted, variant: nested}\n"
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, text)
    (error,) = caught.value.errors
    assert (error.line, error.message.startswith("leaky_exit can't be crossed so: case 'hoisted'")) == (4, True)


def test_only_some_faults(tmp_path: Path) -> None:
    text = "faults: all\ncross:\n  - {fault: leaky_exit, nesting: [flat]}\n"
    assert {one.fault for one in plan(tmp_path, text, ("scale_doubled",)).seeded} == {"scale_doubled"}
    assert len(plan(tmp_path, text, ("leaky_exit",)).seeded) == 2


def test_faults_of_the_front_have_no_cell(tmp_path: Path) -> None:
    selftest = plan(tmp_path, "faults: all\n", ("lost_cell", "leaky_exit"))
    assert [one.name for one in selftest.front] == ["lost_cell"]
    assert {one.fault for one in selftest.seeded} == {"leaky_exit"}


def test_a_fault_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own(tmp_path, monkeypatch, "own_fault_a", '{"nesting": "flat"}')
    (one,) = plan(tmp_path, f"faults: [{path}]\n").seeded
    assert (one.fault, one.cell.axes.provider.label) == (path, f"reference+{path}")
    assert (one.cell.axes.nesting, one.twin.axes.provider.label) == ("flat", "reference")


def test_what_is_wrong_with_a_fault_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several = own(tmp_path, monkeypatch, "own_fault_b", '{"seed": [0, 1]}')
    with pytest.raises(MatrixErrors, match="where names 2 cells, one is needed"):
        plan(tmp_path, f"faults: [{several}]\n")
    nowhere = own(tmp_path, monkeypatch, "own_fault_c", '{"nesting": "sideways"}')
    with pytest.raises(MatrixErrors, match=r"its cell \(where\) can't be planned: unknown nesting"):
        plan(tmp_path, f"faults: [{nowhere}]\n")
    with pytest.raises(LoadError, match="has no attribute 'NONE'"):
        plan(tmp_path, "faults: [own_fault_a:NONE]\n")
    with pytest.raises(LoadError, match="is no fault but function"):
        plan(tmp_path, "faults: [harness.registry:load]\n")
