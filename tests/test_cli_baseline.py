"""``--baseline`` and ``--update-baseline``: what they refuse, what they leave, and which exit code."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from harness.baseline import Environment
from harness.cli import baseline as module
from harness.cli.baseline import BaselineTask, baseline_task, default_file, write_update
from harness.cli.errors import UsageError
from harness.cli.main import main
from harness.cli.option import parse
from harness.cli.run_options import RUN_OPTIONS
from harness.plan import Plan
from harness.plan.baseline import baseline_text, read_baseline
from harness.report import RunInfo
from harness.report.baseline import judge_baseline
from harness.run.here import UnknownMachine
from harness.types import Verdict
from tests.support.baselines import HERE, entry, ran, small_plan, use
from tests.support.running import cell_id, front, write_matrix


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "this_machine", lambda: HERE)
    return tmp_path


def task_of(*words: str, complete: bool = True, plan: Plan | None = None) -> BaselineTask | None:
    settings = parse(RUN_OPTIONS, ["--matrix", "m.yaml", *words], {})
    return baseline_task(plan or small_plan(), settings, complete=complete)


def write(path: Path, *cells: Any, environment: Environment = HERE, matrix: str = "m") -> Path:
    path.write_text(baseline_text(dataclasses.replace(use(*cells).baseline, environment=environment, matrix=matrix)))
    return path


def test_without_either_option_no_machine_is_asked(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "this_machine", None)
    assert task_of() is None


def test_a_baseline_is_read_and_held_against_this_machine(directory: Path) -> None:
    write(directory / "b.json", entry(0))
    task = task_of("--baseline", "b.json")
    assert task is not None
    assert task.use is not None
    assert (task.updating, task.use.file, task.use.here, task.use.gone) == (False, "b.json", HERE, (entry(0).id,))
    assert task.use.gone_because == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--baseline", "none.json"), "none.json: no such baseline: make it with --update-baseline"),
        (("--baseline", "broken.json"), "broken.json:1:2: not JSON"),
        (("--baseline", "sm90.json"), "sm90.json: was measured on sm90, and this machine is cpu"),
        (("--baseline", "sm90.json", "--update-baseline"), "sm90.json: was measured on sm90, and this machine is cpu"),
        (("--baseline", "other.json"), "other.json: is the baseline of the matrix other, not of m (m.yaml)"),
        (("--baseline", "broken.json", "--update-baseline"), "broken.json:1:2: not JSON"),
        (("--baseline", "sm90.json", "--baseline", "other.json"), "--baseline can be given once, not 2 times"),
        (("--update-baseline", "--set", "seed=1"), "--update-baseline with --set: a baseline is one of the matrix"),
        (("--update-baseline", "--allow-env", "TORCH_COMPILE_JOB_ID"), "with --allow-env TORCH_COMPILE_JOB_ID"),
        (("--update-baseline", "--baseline", "."), "cannot be read: Is a directory"),
        (("--update-baseline", "--baseline", "broken.json/b.json"), "can't be written: no permission in"),
    ],
)
def test_what_is_refused_before_anything_runs(directory: Path, words: tuple[str, ...], message: str) -> None:
    (directory / "broken.json").write_text("{")
    write(directory / "sm90.json", environment=Environment("sm90"))
    write(directory / "other.json", matrix="other")
    with pytest.raises(UsageError) as caught:
        task_of(*words)
    assert message in str(caught.value)


def test_it_is_exit_code_4_without_a_traceback(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_matrix(directory, 2)
    (directory / "b.json").write_text('{"schema_version": 1,\n "cells": 5}')
    assert main(["--matrix", "m.yaml", "--baseline", "b.json"]) == 4
    assert "error: b.json:1:1: matrix: missing" in capsys.readouterr().err
    assert not (directory / "reports").exists()


def test_a_machine_that_can_not_say_what_it_is(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Environment:
        raise UnknownMachine("ImportError: no torch")

    monkeypatch.setattr(module, "this_machine", unknown)
    with pytest.raises(UsageError, match="ImportError: no torch"):
        task_of("--update-baseline")


@pytest.mark.parametrize(
    ("words", "complete", "why"),
    [
        (("--update-baseline",), True, "the update takes them out"),
        (("--update-baseline",), False, ""),
        ((), True, ""),
        (("--set", "seed=7"), True, "--set makes another plan"),
    ],
)
def test_when_a_vanished_cell_is_no_red(directory: Path, words: tuple[str, ...], complete: bool, why: str) -> None:
    write(directory / "b.json", entry(0))
    task = task_of("--baseline", "b.json", *words, complete=complete)
    assert task is not None
    assert task.use is not None
    assert task.use.gone_because == why


def test_the_default_file_stands_beside_the_matrix(directory: Path) -> None:
    plan = dataclasses.replace(small_plan(), path="configs/m.yaml")
    assert default_file(plan, HERE) == Path("configs/baselines/m.cpu.json")
    task = task_of("--update-baseline", plan=plan)
    assert task == BaselineTask(Path("configs/baselines/m.cpu.json"), HERE, None, updating=True, complete=True)


def test_the_plan_shows_a_baseline_wherever_it_was_measured(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "this_machine", None)
    write_matrix(directory, 2)
    write(
        directory / "b.json", entry(id=cell_id(1)), environment=Environment("sm90", "NVIDIA H200", {"torch": "2.11.0"})
    )
    assert main(["--matrix", "m.yaml", "--plan", "--baseline", "b.json"]) == 0
    text = capsys.readouterr().out
    assert "note: baseline b.json: 1 cell, measured on sm90 (NVIDIA H200), torch 2.11.0" in text
    row = next(line for line in text.splitlines() if line.startswith("limits.graphs"))
    assert row.split() == ["limits.graphs", "1", "at", "most", "1", "<-", "baseline", "b.json"]
    assert main(["--matrix", "m.yaml", "--plan", "--update-baseline"]) == 0


# What an update writes and says


def task(path: Path, known: Any = None, complete: bool = True) -> BaselineTask:
    return BaselineTask(path, HERE, known, updating=True, complete=complete)


def info_of(results: Any, known: Any = None, complete: bool = True, **changes: Any) -> RunInfo:
    report = judge_baseline(known, results, complete=complete) if known else None
    return RunInfo("r", "m.yaml", name="m", baseline=report, **changes)


def test_the_first_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "b.json"
    results = [ran(0), ran(1, Verdict.FAIL)]
    assert write_update(task(path), info_of(results, exit_code=1), results, stopped=False)
    assert read_baseline(path).baseline.cells == (entry(0),)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"baseline {path}: 1 cell",
        "  1 cell new: toy_linear[seed=0]",
        "  1 cell not in it: not as expected, and never were: toy_linear[seed=1]",
    ]
    assert list(path.parent.iterdir()) == [path]


def test_everything_that_is_kept_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = (entry(0), entry(1, recompiles=2), entry(2), entry(3), entry(4))
    path = write(tmp_path / "b.json", *entries)
    known = dataclasses.replace(use(*entries), file=str(path))
    results = [ran(0), ran(1), ran(2, Verdict.FAIL), ran(3, census={"graphs": 2})]
    info = info_of(results, known, complete=False, exit_code=1)
    assert write_update(task(path, known, complete=False), info, results, stopped=False)
    assert read_baseline(path).baseline.cells == (entry(0), entry(1), entry(2), entry(3), entry(4))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  1 cell measured again, the same",
        "  1 cell changed: toy_linear[seed=1]",
        "  1 cell kept as they were: not as expected in this run: toy_linear[seed=2]",
        "  1 cell kept as they were: worse than that in this run; to accept it, take out the line and update: "
        "toy_linear[seed=3]",
        "  1 cell kept as they were: this run did not select them",
    ]


@pytest.mark.parametrize(
    ("stopped", "code", "why"),
    [(True, 1, "stopped by -x/--maxfail"), (False, 2, "interrupted"), (False, 3, "internal error: x")],
)
def test_a_run_that_did_not_end_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stopped: bool, code: int, why: str
) -> None:
    path = tmp_path / "b.json"
    results = [ran(0)]
    info = info_of(results, exit_code=code, exit_reason=why)
    assert write_update(task(path), info, results, stopped=stopped)
    assert not path.exists()
    assert f"not updated, nothing in it was changed: the run did not come to its end ({why})" in capsys.readouterr().out


def test_a_run_without_a_green_cell_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "b.json", entry(0))
    before = path.read_bytes()
    known = use(entry(0), here=Environment("cpu", "", {"torch": "9"}))
    results = [ran(0, Verdict.FAIL)]
    assert write_update(task(path, known), info_of(results, known, exit_code=1), results, stopped=False)
    assert path.read_bytes() == before
    assert "not updated: no cell of this run is as expected" in capsys.readouterr().out


def test_a_file_that_somebody_else_wrote_meanwhile_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "b.json", entry(0, recompiles=5))
    before = path.read_bytes()
    for known in (None, use(entry(0))):
        assert not write_update(task(path, known), info_of([ran(0)], known), [ran(0)], stopped=False)
        assert "was written by somebody else while this run went on" in capsys.readouterr().err
        assert path.read_bytes() == before


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "b.json", entry(0, recompiles=5))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    known = use(entry(0, recompiles=5))
    assert not write_update(task(path, known), info_of([ran(0)], known), [ran(0)], stopped=False)
    assert "error: the baseline was not updated: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


# The front itself, on fake cells


def test_a_run_is_held_against_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    write_matrix(tmp_path, 3)
    first = front(tmp_path, "--update-baseline", "-n", "1", faults={2: "fail"})
    assert first.code == 1, first.output
    (path,) = (tmp_path / "baselines").iterdir()
    assert {cell.id for cell in read_baseline(path).baseline.cells} == {cell_id(0), cell_id(1)}

    words = ("--baseline", str(path.relative_to(tmp_path)), "-n", "1")
    skipped = front(tmp_path, *words, faults={1: "skip"})
    assert skipped.code == 0, skipped.output  # the fake skip claims to be emulated: evidence is as before
    assert skipped.run["baseline"]["compared"] == 2
    assert skipped.run["baseline"]["notes"] == [f"1 cell not in the baseline: {cell_id(2)}"]

    path.write_text(path.read_text().replace('"emulated"', '"native"', 1))
    worse = front(tmp_path, *words)
    assert worse.code == 1, worse.output
    assert "exit code 1: worse than the baseline" in worse.output
    assert f"--baseline {words[1]} --cell" in worse.results[0].repro
