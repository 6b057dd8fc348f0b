"""A clean matrix many times over: what is an alarm, and that a run which went wrong is none of silence."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.detection import alarms
from harness.detection.alarms import Repeats
from harness.exit_codes import GOOD, INTERNAL, INTERRUPTED, NOTHING, USAGE
from harness.types import CellResult, Verdict
from tests.support.cells import cell, result
from tests.support.running import write_matrix


def seen(name: str, seed: int, verdict: Verdict = Verdict.PASS, shape: str = "") -> CellResult:
    tail = f",seed={seed}" if seed else ""
    shaped = f",shape={shape}" if shape else ""
    return dataclasses.replace(result(cell(seed), verdict), id=f"{name}[provider=reference{shaped}{tail}]")


def test_seed_and_shape_are_not_what_a_cell_is() -> None:
    names = {alarms.without_seed(seen("a", seed, shape=shape)) for seed in (0, 7) for shape in ("", "64x64x64")}
    assert names == {"a[provider=reference]"}
    assert alarms.without_seed(seen("b", 1)) != alarms.without_seed(seen("a", 1))


def test_no_alarm_where_every_seed_gives_the_same_green() -> None:
    repeats = alarms.compared([seen(name, seed) for name in "ab" for seed in range(5)])
    assert (repeats.exit_code, repeats.distinct, repeats.cells) == (0, 2, {"pass": 10})
    assert alarms.told(repeats, 5).endswith("no alarm")


@pytest.mark.parametrize("other", [Verdict.FAIL, Verdict.SKIP, Verdict.FLAKY, Verdict.XFAIL])
def test_one_other_verdict_is_an_alarm(other: Verdict) -> None:
    repeats = alarms.compared([*(seen("a", seed) for seed in range(5)), seen("a", 9, other)])
    assert repeats.exit_code == 1
    assert repeats.alarms[0].verdicts == {"pass": 5, other.value: 1}
    assert "ALARM a[provider=reference]" in alarms.told(repeats, 6)


def test_a_red_that_is_always_red_is_an_alarm_and_a_skip_that_always_skips_is_none() -> None:
    assert alarms.compared([seen("a", seed, Verdict.FAIL) for seed in range(3)]).exit_code == 1
    assert alarms.compared([seen("a", seed, Verdict.SKIP) for seed in range(3)]).exit_code == 0


RED = [seen("a", 0, Verdict.FAIL)]
GREEN = [seen("a", 0)]


@pytest.mark.parametrize(
    ("results", "ended", "code", "last"),
    [
        (GREEN, GOOD, 0, "no alarm"),
        (RED, GOOD, 1, "1 alarm"),
        ([], GOOD, 5, "exit code 5: a run had no cells"),
        (GREEN, NOTHING, 5, "exit code 5: a run had no cells; no alarm in what ran"),
        (GREEN, INTERRUPTED, 2, "exit code 2: interrupted; no alarm in what ran"),
        (RED, INTERRUPTED, 2, "exit code 2: interrupted; 1 alarm in what ran"),
        (RED, INTERNAL, 3, "exit code 3: a run failed; 1 alarm in what ran"),
        ([], USAGE, 4, "exit code 4: a run was refused"),
    ],
)
def test_exit_codes_and_what_is_said_last(results: list[CellResult], ended: int, code: int, last: str) -> None:
    repeats = alarms.compared(results, ["out: something"] if ended else [], ended)
    assert repeats.exit_code == code
    assert alarms.told(repeats, 1).splitlines()[-1] == last
    assert ("PROBLEM out: something" in alarms.told(repeats, 1)) is bool(ended)


class FakeProcess:
    """A run that ends with ``code``; before that the user interrupts ``interrupts`` times."""

    code, interrupts = 0, 0

    def __init__(self, command: list[str]) -> None:
        self.signals: list[int] = []

    def __enter__(self) -> FakeProcess:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def wait(self) -> int:
        if self.interrupts > len(self.signals):
            raise KeyboardInterrupt
        return self.code

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


def test_an_interrupted_run_is_compared_as_far_as_it_came_and_is_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Interrupted(FakeProcess):
        code, interrupts = INTERRUPTED, 1

    monkeypatch.setattr(alarms.subprocess, "Popen", Interrupted)
    monkeypatch.setattr(alarms, "read_results", lambda directory: [seen("a", 1)])
    reports = itertools.count()
    monkeypatch.setattr(alarms, "_report_of", lambda directory: (0, next(reports)))
    repeats = alarms.repeated("l0.yaml", ["64x64x64", "128x64x64"], [5], tmp_path, [])
    assert (repeats.cells, repeats.exit_code) == ({"pass": 1}, 2)
    assert [problem.endswith("exit code 2") for problem in repeats.problems] == [True]


def test_each_shape_is_a_run_with_every_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []

    class Process(FakeProcess):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            commands.append(command)

    monkeypatch.setattr(alarms.subprocess, "Popen", Process)
    monkeypatch.setattr(alarms, "read_results", lambda directory: [seen("a", 1)])
    reports = itertools.count()
    monkeypatch.setattr(alarms, "_report_of", lambda directory: (0, next(reports)))
    shapes = ["64x64x64", "128x64x64"]
    assert alarms.repeated("l0.yaml", shapes, [5, 6], tmp_path, ["-n", "2"]).exit_code == 0
    assert [command[command.index("--shuffle") + 1] for command in commands] == ["5", "5"]
    assert all("seed=5,6" in command and command[2:4] == ["--matrix", "l0.yaml"] for command in commands)
    assert ["shape=64x64x64" in command for command in commands] == [True, False]


def test_a_run_that_is_refused_is_told_once(tmp_path: Path) -> None:
    repeats = alarms.repeated(str(tmp_path / "none.yaml"), ["64x64x64", "128x64x64"], [1], tmp_path / "out", [])
    assert repeats.exit_code == 4
    assert [problem.rpartition(": ")[2] for problem in repeats.problems] == ["exit code 4"]


@pytest.mark.parametrize(("ended", "code"), [(0, 5), (1, 5), (-9, 3), (3, 3), (4, 4), (5, 5)])
def test_what_an_earlier_run_left_there_is_not_taken_for_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: int, code: int
) -> None:
    class Process(FakeProcess):
        code = ended

    (tmp_path / "own-shapes").mkdir()
    (tmp_path / "own-shapes" / "run.json").write_text("{}")
    monkeypatch.setattr(alarms.subprocess, "Popen", Process)
    monkeypatch.setattr(alarms, "read_results", lambda directory: [seen("a", 1)])
    repeats = alarms.repeated("l0.yaml", [""], [5], tmp_path, [])
    assert (repeats.cells, repeats.exit_code) == ({}, code)


def test_results_that_cannot_be_read_are_an_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Process(FakeProcess):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            (tmp_path / "own-shapes").mkdir()
            (tmp_path / "own-shapes" / "run.json").write_text("{}")
            (tmp_path / "own-shapes" / "results.jsonl").write_text("nonsense")

    monkeypatch.setattr(alarms.subprocess, "Popen", Process)
    assert alarms.repeated("l0.yaml", [""], [5], tmp_path, []).exit_code == 3


def test_a_shape_given_twice_is_run_once_and_one_seed_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def repeated(matrix: str, shapes: Sequence[str], seeds: Sequence[int], out: Path, words: Sequence[str]) -> Repeats:
        asked.append((list(shapes), list(seeds), words))
        return alarms.compared(GREEN)

    monkeypatch.setattr(alarms, "repeated", repeated)
    words = ["--shapes", "64x64x64,064x64x64,128x64x64", "--first-seed", "7", "--seeds", "1", "-n", "2"]
    assert alarms.main(words) == 0
    assert asked == [(["64x64x64", "128x64x64"], [7], ["-n", "2"])]
    assert "1 cell, 2 times each: 1 pass" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0"], "argument --seeds: expected a whole number from 1, got '0'"),
        (["--seeds", "-3"], "argument --seeds: expected a whole number from 1, got '-3'"),
        (["--seeds", "many"], "argument --seeds: expected a whole number from 1, got 'many'"),
        (["--seeds", "10001"], "--seeds 10001: 10000 at most"),
        (["--first-seed", "-1"], "expected a whole number from 0 to 2147483647, got '-1'"),
        (["--first-seed", "2147483647", "--seeds", "2"], "2147483647 is the largest"),
        (["--shapes", "64x64"], "argument --shapes: expected MxKxN with whole numbers from 1, got '64x64'"),
        (["--shapes", "64x64x0"], "expected MxKxN"),
        (["--shapes", ""], "expected MxKxN"),
        (["--out", ""], "argument --out: expected a directory, got ''"),
        (["--report-dir", "x"], "--report-dir can't be given to the runs of this command"),
        (["--plan"], "--plan can't be given"),
    ],
)
def test_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        alarms.main(words)
    assert stop.value.code == USAGE
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("usage: python -m harness.detection.alarms")


def test_an_interrupt_between_runs_is_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*arguments: object) -> Repeats:
        raise KeyboardInterrupt

    monkeypatch.setattr(alarms, "repeated", interrupt)
    assert alarms.main([]) == INTERRUPTED
    assert capsys.readouterr().out.endswith("interrupted\n")


def test_the_command_itself(tmp_path: Path) -> None:
    matrix = write_matrix(tmp_path, 1)
    words = ["--matrix", str(matrix), "--seeds", "2", "--first-seed", "3", "--out", str(tmp_path / "out"), "-n", "0"]
    command = [sys.executable, "-m", "harness.detection.alarms", *words, "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seeds 3 to 4" in done.stdout
    assert done.stdout.rstrip().endswith("1 cell, 2 times each: 2 pass\nno alarm")
