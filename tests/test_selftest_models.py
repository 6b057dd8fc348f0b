"""A selftest file: what may stand in it, and what a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.faults import FAULTS, FRONT_FAULTS
from harness.plan.errors import MatrixErrors
from harness.selftest.models import axes_of, read_selftest


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text("schema_version: 1\n" + text)
    return path


def faults_in(tmp_path: Path, text: str) -> list[str]:
    return read_selftest(write(tmp_path, text))[0].faults


def told(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(MatrixErrors) as caught:
        read_selftest(write(tmp_path, text))
    return [str(error).partition("own.yaml:")[2] for error in caught.value.errors]


def test_all_is_every_registered_fault_and_takes_others_beside_it(tmp_path: Path) -> None:
    every = [*sorted(FAULTS), *sorted(FRONT_FAULTS)]
    assert faults_in(tmp_path, "faults: all\n") == every
    assert faults_in(tmp_path, "faults: [all, leaky_exit, my.faults:FAULT]\n") == [*every, "my.faults:FAULT"]
    assert faults_in(tmp_path, "faults: [scale_doubled]\n") == ["scale_doubled"]


def test_the_one_in_configs_names_every_fault() -> None:
    model, _, file = read_selftest("selftest.yaml")
    assert model.faults == [*sorted(FAULTS), *sorted(FRONT_FAULTS)]
    assert file.endswith("selftest.yaml")
    assert {entry.fault for entry in model.cross} >= {"leaky_exit", "scale_wasted", "bf16_products"}


def test_a_cross_entry_holds_axis_values_beside_the_fault(tmp_path: Path) -> None:
    entry = "{fault: leaky_exit, nesting: [flat, deep], backend: eager, caught_by: state.unchanged}"
    text = f"faults: all\ncross:\n  - {entry}\n"
    (read,) = read_selftest(write(tmp_path, text))[0].cross
    assert axes_of(read) == {"nesting": ["flat", "deep"], "backend": ["eager"]}
    assert (read.fault, read.caught_by) == ("leaky_exit", "state.unchanged")


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("faults: [leaky_exti]\n", ["2:10: unknown fault 'leaky_exti' (did you mean leaky_exit?)"]),
        ("faults: [qqq]\n", ["2:10: unknown fault 'qqq' (unregistered: package.module:FAULT)"]),
        ("faults: [all, leaky_exti]\n", ["2:15: unknown fault 'leaky_exti' (did you mean leaky_exit?)"]),
        ("faults: [scale_douled, all, 'bad:']\n", ["2:10: unknown fault 'scale_douled'", "2:29: unknown fault 'bad:'"]),
        ("faults: null\n", ["2:9: expected all or a list of faults, got nothing"]),
        ("faults:\n", ["2:8: expected all or a list of faults, got nothing"]),
        ("faults: [all, null]\n", ["2:15: expected a fault's name, got nothing"]),
        ("faults: typo\n", ["2:9: unknown fault 'typo' (unregistered: package.module:FAULT)"]),
        ("faults: all\ncross: [{fault: all, nesting: flat}]\n", ["3:17: unknown fault 'all'"]),
        ("faults: all\ncros: []\n", ["3:1: unknown key 'cros' (did you mean cross?)"]),
        ("fault: all\n", ["2:1: unknown key 'fault' (did you mean faults?)", "1:1: missing key 'faults'"]),
        ("faults: {}\n", ["2:9: expected all or a list of faults, got "]),
        ("faults: [[a], leaky_exit]\n", ["2:10: expected a fault's name, got a list"]),
        ("faults: []\n", ["2:9: an empty list: at least one value is needed"]),
        ("faults: all\ncross: [{nesting: flat}]\n", ["3:9: missing key 'fault'"]),
        (
            "faults: all\ncross: [{fault: leaky_exit, nestin: flat, backend: egaer}]\n",
            [
                "3:29: unknown key 'nestin' in cross (did you mean nesting?)",
                "3:52: unknown backend 'egaer' (did you mean eager?)",
            ],
        ),
        (
            "faults: all\ncross: [{fault: lost_cell, nesting: flat}]\n",
            ["3:17: lost_cell is a fault of the harness's front: it has no cell"],
        ),
        (
            "faults: all\ncross: [{fault: leaky_exit, caught_by: state.unchangd}]\n",
            ["3:40: unknown check 'state.unchangd' (did you mean state.unchanged?)"],
        ),
        (
            "matrix: {recipe: [mxfp8_block_scaling]}\n",
            ["2:1: key 'matrix' makes this a run matrix: runner.py --matrix"],
        ),
        ("faults: all\nmatrix: {recipe: [delayed_scaling]}\n", ["3:1: unknown key 'matrix'"]),
    ],
)
def test_a_mistake_is_told_at_its_place(tmp_path: Path, text: str, errors: list[str]) -> None:
    got = told(tmp_path, text)
    assert len(got) == len(errors)
    for error in errors:
        assert any(one.startswith(error) for one in got), got


def test_a_key_given_twice_and_an_empty_file(tmp_path: Path) -> None:
    assert told(tmp_path, "faults: all\nfaults: all\n") == ["3:1: duplicate key 'faults', first given at line 2"]
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(MatrixErrors, match="is empty: a selftest file starts with schema_version: 1 and faults: all"):
        read_selftest(tmp_path / "empty.yaml")


def test_a_selftest_file_given_as_matrix_is_told_so(tmp_path: Path) -> None:
    from harness.plan import load_matrix

    with pytest.raises(MatrixErrors, match=r"runner\.py selftest --matrix"):
        load_matrix(write(tmp_path, "faults: all\n"))
