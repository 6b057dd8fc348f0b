"""From a selftest file to faults in cells and the cells without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.faults import FAULTS, FRONT_FAULTS
from harness.plan.errors import MatrixErrors
from harness.selftest.plan import Selftest, plan_selftest

DEADLY = """
from contextlib import nullcontext
from harness.faults.fault import Fault
FAULT = Fault("anything", "nothing at all", "{check}", nullcontext, **{more})
"""
OWN = """
from contextlib import nullcontext
from harness.faults.fault import Fault
FAULT = Fault("anything", "nothing at all", "state.unchanged", nullcontext, where={where})
"""
ODD = """
def bare(provider):
    yield provider
class NoRepr:
    def __repr__(self): raise ValueError
class NoItems(dict):
    def items(self): raise RuntimeError("not today")
class NoSignature:
    __signature__ = 3
    def __call__(self, *given): return nullcontext(*given)
from dataclasses import replace
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
    "needs=None": "needs must be text, got None (NoneType)",
    "report=object()": "report must be text, got <object object at ",
    'report=""': "",
    "name=3": "name must be text, got 3 (int)",
    "name=' '": "name must not be empty",
    "breaks=None": "breaks must be text, got None (NoneType)",
    'providers="reference"': "providers must be a tuple of providers' names, got 'reference'",
    'providers=("referenc",)': "providers: unknown provider 'referenc' (did you mean reference?)",
    "providers=()": "providers must name one at least",
    'providers=("transformer_engine", "reference")': "",
    'where="flat"': "where must be a mapping of axes to values, got 'flat'",
    'where={"nesting": "sideways"}': "its cell (where) can't be planned: unknown nesting 'sideways'",
    'where={"nestin": "flat"}': "its cell (where) can't be planned: unknown axis 'nestin' in include (did you mean",
    'where={"seed": [0, 1]}': "where names 2 cells, one is needed: {'seed': [0, 1]}",
    'where={"seed": object()}': "where: seed must be what a matrix can hold (text, a number, ",
    'where={"nesting": {"flat"}}': "where: nesting must be what a matrix can hold (text, a number, ",
    'where={"provider": {"emulate": True}}': "its cell (where) can't be planned: missing key 'name'",
    "where=NoItems()": "where can't be read: RuntimeError: not today",
    'where={1: "flat"}': "where: an axis is a name, got 1 (int)",
    'where={"seed": NoRepr()}': "where: seed must be what a matrix can hold",
    'caught_by="numerics.scale"': "caught_by: unknown check 'numerics.scale' (did you mean numerics.scales?)",
    'caught_by="run.timeut"': "caught_by: unknown check 'run.timeut' (did you mean run.timeout?)",
    "apply=None": "apply must be a context manager of the provider, got None",
    "apply=bare": "apply is a bare generator function: decorate a generator with contextlib.contextmanager",
    "apply=lambda: nullcontext()": "apply must take the provider as its one argument: too many positional arguments",
    "apply=NoSignature()": "",
    'caught_by="run.flaky"': "",
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_wrong_field_is_told_in_the_file_of_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    name = f"own_fault_{list(FIELDS).index(field)}x"
    path = own(tmp_path, monkeypatch, name)
    with (tmp_path / f"{name}.py").open("a") as file:
        file.write(f"{ODD}WRONG = replace(FAULT, {field})\n")
    text = f"faults: [{path.replace('FAULT', 'WRONG')}]\n"
    if not FIELDS[field]:
        assert len(plan(tmp_path, text).seeded) == 1
        return
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, text)
    (error,) = caught.value.errors
    assert (Path(error.file).name, error.line) == (f"{name}.py", 5 + ODD.count("\n"))
    assert f"fault {name}:WRONG: {FIELDS[field]}" in str(error)


def test_every_mistake_of_every_fault_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [own(tmp_path, monkeypatch, name, '{"nesting": "sideways"}') for name in ("own_fault_m", "own_fault_n")]
    fields = 'name=1, breaks=2, report=3, needs="rocm", caught_by="no.check", providers=[4], apply=5'
    for name in ("own_fault_m", "own_fault_n"):
        with (tmp_path / f"{name}.py").open("a") as file:
            file.write(f"{ODD}FAULT = replace(FAULT, {fields})\n")
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, "faults:\n" + "".join(f"  - {path}\n" for path in paths))
    said = [error.message for error in caught.value.errors]
    words = ("name", "breaks", "report", "apply", "caught_by", "needs", "providers", "its cell (where)")
    for path in paths:
        assert [word for word in words if any(one.startswith(f"fault {path}: {word}") for one in said)] == list(words)
    assert len(said) == len(paths) * len(words)


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
    assert told[0] == "own_fault_good has no attribute 'NONE'; its faults: FAULT"
    assert told[1].startswith(f"{tmp_path}/own_fault_broken.py:2: importing own_fault_broken raised SyntaxError: ")
    assert told[2] == f"{tmp_path}/own_fault_raises.py:2: importing own_fault_raises raised ValueError: not today"
    assert told[3] == "no module 'own_fault_none' in the working directory or on Python's path"
    assert "is no fault but function" in told[4]
    # Asked for by option, the option is the place; what the file says beside it doesn't matter.
    with pytest.raises(MatrixErrors) as asked:
        plan(tmp_path, "faults: [leaky_exit]\n", (*names[:2], "leaky_exti", "scale_douled", "leaky_exit"))
    said = sorted(str(error) for error in asked.value.errors)
    assert [one.partition(": ")[0] for one in said] == [
        "--fault own_fault_broken:FAULT",
        "--fault own_fault_raises:FAULT",
        "--fault",
        "--fault",
    ]
    assert said[2] == "--fault: unknown fault 'leaky_exti' (did you mean leaky_exit?)"
    assert {one.fault for one in plan(tmp_path, f"faults: [{names[0]}]\n", ("leaky_exit",)).seeded} == {"leaky_exit"}


def test_what_cannot_be_imported_has_the_nearest_that_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path, monkeypatch, "own_fault_near")
    (tmp_path / "own_fault_needs.py").write_text("import own_fault_nothing\n")
    monkeypatch.chdir(tmp_path)
    names = (
        "own_fault_neer:FAULT",
        "harness.faults.leaky_exi:FAULT",
        "harness.fault.leaky_exit:FAULT",
        "own_fault_near:FALUT",
        "own_fault_needs:FAULT",
    )
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, "faults: all\n", names)
    told = {error.file.partition(" ")[2]: (error.message, error.nearest) for error in caught.value.errors}
    nowhere = "no module '{}' in the working directory or on Python's path".format
    assert told == {
        names[0]: (nowhere("own_fault_neer"), "own_fault_near:FAULT"),
        names[1]: (nowhere("harness.faults.leaky_exi"), "harness.faults.leaky_exit:FAULT"),
        names[2]: (nowhere("harness.fault"), "harness.faults.leaky_exit:FAULT"),
        names[3]: ("own_fault_near has no attribute 'FALUT'", "own_fault_near:FAULT"),
        names[4]: (
            f"{tmp_path}/own_fault_needs.py:1: importing own_fault_needs raised ModuleNotFoundError: "
            "No module named 'own_fault_nothing'",
            None,
        ),
    }


@pytest.mark.parametrize(
    ("check", "more", "message"),
    [
        ("run.crash", {}, "run.crash needs dies: how the process ends, one of SIGABRT, "),
        ("run.infra", {}, "run.infra needs dies: "),
        ("run.crash", {"dies": "SIGKILL"}, "dies can't be 'SIGKILL': one of SIGABRT, "),
        ("run.crash", {"dies": "exit 256"}, "dies can't be 'exit 256'"),
        ("run.crash", {"dies": 7}, "dies can't be 7"),
        ("run.crash", {"dies": "SIGSEGV"}, ""),
        ("run.crash", {"dies": "exit 0"}, "dies can't be 'exit 0'"),
        ("run.crash", {"dies": "exit 1"}, "dies can't be 'exit 1'"),
        ("run.crash", {"dies": "exit 137"}, "dies can't be 'exit 137'"),
        ("run.crash", {"dies": "exit 127"}, ""),
        ("run.timeout", {}, ""),
        ("fp8.gemms", {"providers": ("transformer_engine",)}, "it breaks nothing of reference, only of transformer_en"),
        ("fp8.gemms", {"providers": ("transformer_engine", "reference")}, ""),
    ],
)
def test_how_a_fault_dies_and_where_it_does_anything_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, more: dict[str, object], message: str
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY.format(check=check, more=more))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("deadly", None)
    if not message:
        (one,) = plan(tmp_path, "faults: all\n", ("deadly:FAULT",)).seeded
        assert (one.caught_by, one.dies) == (check, more.get("dies", ""))
        return
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, "faults: all\n", ("deadly:FAULT",))
    (error,) = caught.value.errors
    assert (error.line, error.message.startswith(f"fault deadly:FAULT: {message}")) == (4, True)


def test_an_entry_of_cross_needs_what_its_check_needs(tmp_path: Path) -> None:
    text = "faults: all\ncross:\n  - {fault: leaky_exit, caught_by: run.crash}\n"
    with pytest.raises(MatrixErrors) as caught:
        plan(tmp_path, text)
    (error,) = caught.value.errors
    assert (error.line, error.message.startswith("leaky_exit can't be crossed so: run.crash needs dies")) == (4, True)
