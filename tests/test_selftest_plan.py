"""From a selftest file to faults in cells and the cells without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.faults import FAULTS, FRONT_FAULTS
from harness.plan.errors import MatrixErrors
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
        "caught_by: numerics.program}\n"
        "  - {fault: scale_doubled, provider: {name: reference, emulate: false}, shape: [[128, 128, 128]]}\n"
    )
    first, crossed, other = plan(tmp_path, text).seeded
    assert (first.caught_by, crossed.caught_by) == ("numerics.scales", "numerics.program")
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


def test_two_checks_wanted_of_one_cell_are_both_looked_at(tmp_path: Path) -> None:
    text = (
        "faults: [leaky_exit]\ncross:\n"
        "  - {fault: leaky_exit, nesting: nested, caught_by: compile.graphs}\n"
        "  - {fault: leaky_exit, nesting: nested}\n"
    )
    selftest = plan(tmp_path, text)
    assert [one.caught_by for one in selftest.seeded] == ["state.unchanged", "compile.graphs"]
    assert len({one.cell.id for one in selftest.seeded}) == 1
    assert len(selftest.cells) == 2


def test_a_cross_for_a_fault_that_is_not_among_faults_is_told(tmp_path: Path) -> None:
    text = "faults: [scale_doubled]\ncross:\n  - {fault: leaky_exit, nesting: [flat]}\n"
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, text)
    (error,) = caught.value.errors
    assert (error.line, error.column, error.message) == (4, 13, "leaky_exit is not among faults")


FIELDS = {
    'needs="rocm"': "needs: a fault can't need 'rocm': cuda, or torch>=X.Y",
    'needs="torch>=x.y"': "needs: a fault can't need 'torch>=x.y': cuda, or torch>=X.Y",
    'needs="torch"': "needs: a fault can't need 'torch': cuda, or torch>=X.Y",
    "needs=None, report=None": "",
    'where="flat"': "where must be a mapping of axes to values, got 'flat'",
    'where={"nesting": "sideways"}': "its cell (where) can't be planned: unknown nesting 'sideways'",
    'where={"nestin": "flat"}': "its cell (where) can't be planned: unknown axis 'nestin' in include (did you mean",
    'where={"seed": [0, 1]}': "where names 2 cells, one is needed: {'seed': [0, 1]}",
    'where={"seed": object()}': "Object of type object is not JSON serializable",
    'caught_by="numerics.scale"': "caught_by: unknown check 'numerics.scale' (did you mean numerics.scales?)",
    'caught_by="run.timeut"': "caught_by: unknown check 'run.timeut' (did you mean run.timeout?)",
    "apply=None": "apply must be a context manager of the provider, got None",
    'caught_by="run.flaky"': "",
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_field_is_told_in_the_file_of_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    name = f"own_fault_{list(FIELDS).index(field)}x"
    path = own(tmp_path, monkeypatch, name)
    with (tmp_path / f"{name}.py").open("a") as file:
        file.write(f"from dataclasses import replace\nWRONG = replace(FAULT, {field})\n")
    text = f"faults: [{path.replace('FAULT', 'WRONG')}]\n"
    if not FIELDS[field]:
        assert len(plan(tmp_path, text).seeded) == 1
        return
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, text)
    (error,) = caught.value.errors
    assert (Path(error.file).name, error.line) == (f"{name}.py", 6)
    assert f"fault {name}:WRONG: {FIELDS[field]}" in str(error)


def test_everything_that_cannot_be_imported_is_told_at_the_place_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = own(tmp_path, monkeypatch, "own_fault_good")
    (tmp_path / "own_fault_broken.py").write_text("x = 1\nFAULT = (\n")
    (tmp_path / "own_fault_raises.py").write_text("\nraise ValueError('not today')\n")
    names = ["own_fault_broken:FAULT", "own_fault_raises:FAULT", "own_fault_none:FAULT", "harness.registry:load"]
    lines = [good.replace("FAULT", "NONE"), good, *names]
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, "faults:\n" + "".join(f"  - {name}\n" for name in lines))
    errors = {error.line: error for error in caught.value.errors}
    assert list(errors) == [3, 5, 6, 7, 8]
    assert {error.column for error in caught.value.errors} == {5}
    told = [error.message for error in errors.values()]
    assert told[0] == "own_fault_good has no attribute 'NONE'"
    assert told[1].startswith(f"{tmp_path}/own_fault_broken.py:2: importing own_fault_broken raised SyntaxError: ")
    assert told[2] == f"{tmp_path}/own_fault_raises.py:2: importing own_fault_raises raised ValueError: not today"
    assert told[3] == "importing own_fault_none raised ModuleNotFoundError: No module named 'own_fault_none'"
    assert "is no fault but function" in told[4]
    # Asked for by option, the option is the place; what the file says beside it doesn't matter.
    with pytest.raises(MatrixErrors) as asked:
        plan(tmp_path, "faults: [leaky_exit]\n", (*names[:2], "leaky_exti", "scale_douled", "leaky_exit"))
    said = sorted(str(error) for error in asked.value.errors)
    assert [one.partition(": ")[0] for one in said] == [
        "--fault leaky_exti",
        "--fault own_fault_broken:FAULT",
        "--fault own_fault_raises:FAULT",
        "--fault scale_douled",
    ]
    assert said[0].endswith("no such fault (did you mean leaky_exit?)")
    assert {one.fault for one in plan(tmp_path, f"faults: [{names[0]}]\n", ("leaky_exit",)).seeded} == {"leaky_exit"}
