"""A clean matrix many times over: what is an alarm, and that a run which went wrong is none of silence."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from harness.detection import alarms
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


def test_nothing_that_ran_is_not_a_green() -> None:
    assert alarms.compared([]).exit_code == 1
    assert alarms.compared([seen("a", 0)], ["out: exit code 3"]).exit_code == 1


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
        code, interrupts = alarms.INTERRUPTED, 1

    monkeypatch.setattr(alarms.subprocess, "Popen", Interrupted)
    monkeypatch.setattr(alarms, "read_results", lambda directory: [seen("a", 1)])
    repeats = alarms.repeated("l0.yaml", ["64x64x64", "128x64x64"], [5], tmp_path, [])
    assert (repeats.cells, repeats.exit_code) == ({"pass": 1}, 1)
    assert [problem.endswith("exit code 2") for problem in repeats.problems] == [True]


def test_each_shape_is_a_run_with_every_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []

    class Process(FakeProcess):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            commands.append(command)

    monkeypatch.setattr(alarms.subprocess, "Popen", Process)
    monkeypatch.setattr(alarms, "read_results", lambda directory: [seen("a", 1)])
    shapes = ["64x64x64", "128x64x64"]
    assert alarms.repeated("l0.yaml", shapes, [5, 6], tmp_path, ["-n", "2"]).exit_code == 0
    assert [command[command.index("--shuffle") + 1] for command in commands] == ["5", "5"]
    assert all("seed=5,6" in command and command[2:4] == ["--matrix", "l0.yaml"] for command in commands)
    assert ["shape=64x64x64" in command for command in commands] == [True, False]


def test_a_run_that_leaves_no_results_is_a_problem(tmp_path: Path) -> None:
    repeats = alarms.repeated(str(tmp_path / "none.yaml"), [""], [1], tmp_path / "out", [])
    assert repeats.exit_code == 1
    assert any("exit code 4" in problem for problem in repeats.problems)


def test_the_command_itself(tmp_path: Path) -> None:
    matrix = write_matrix(tmp_path, 1)
    words = ["--matrix", str(matrix), "--seeds", "2", "--first-seed", "3", "--out", str(tmp_path / "out"), "-n", "0"]
    command = [sys.executable, "-m", "harness.detection.alarms", *words, "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seeds 3 to 4" in done.stdout
    assert done.stdout.rstrip().endswith("1 cells, 2 times each: 2 pass\nno alarm")
