"""Each fault of the front is noticed by the finding it names, and the same run without it is clean."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.faults import FRONT_FAULTS
from harness.faults.front import FrontFault
from harness.registry import load
from harness.selftest.front import Shown, Stopped, is_caught, is_clean, main, said_in, shown, twin_key

ALL: dict[str, FrontFault] = {name: load(path) for name, path in FRONT_FAULTS.items()}
# Honest runs differ by nothing but their matrix.
TWINS = {twin_key(fault): fault for fault in ALL.values()}


def run_here(fault: FrontFault, directory: Path, *, broken: bool) -> Shown:
    """As ``shown`` does it, without a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        code = main([fault.name, "--broken" if broken else "--clean"])
    return Shown(code, *said_in(directory / "report", fault.caught_by), 0.0)


@pytest.mark.parametrize("name", ALL)
def test_fault_is_caught_by_the_finding_it_names(tmp_path: Path, name: str) -> None:
    run = run_here(ALL[name], tmp_path, broken=True)
    assert is_caught(ALL[name], run), run


@pytest.mark.parametrize("name", [fault.name for fault in TWINS.values()])
def test_the_same_run_without_it_is_clean(tmp_path: Path, name: str) -> None:
    run = run_here(ALL[name], tmp_path, broken=False)
    assert is_clean(ALL[name], run), run


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    fault = ALL["exit_zero"]
    broken = shown(fault, tmp_path / "broken", broken=True, timeout=60)
    assert (broken.exit_code, broken.reason) == (
        3,
        "audit.exit_code: 0 in spite of 1 red cell(s), 0 finding(s) of the baseline",
    )
    clean = shown(fault, tmp_path / "clean", broken=False, timeout=60)
    assert (clean.exit_code, is_clean(fault, clean), is_caught(fault, clean)) == (1, True, False)
    assert 0 < clean.seconds < 60


def test_once_stopped_no_child_is_started_and_one_that_runs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        shown(ALL["exit_zero"], tmp_path / "never", broken=True, timeout=60, stopped=lambda: True)
    assert list((tmp_path / "never").iterdir()) == []
    asked: list[int] = []

    def later() -> bool:
        asked.append(len(asked))
        return len(asked) > 1

    with pytest.raises(Stopped):
        shown(ALL["exit_zero"], tmp_path / "ended", broken=True, timeout=60, stopped=later)
    assert len(asked) == 2
    assert not (tmp_path / "ended" / "report").exists()


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        shown(ALL["exit_zero"], tmp_path, broken=True, timeout=0.01)


@pytest.mark.parametrize("name", ALL)
def test_fault_names_itself(name: str) -> None:
    assert ALL[name].name == name
    assert ALL[name].breaks
    assert ALL[name].honest == 1, "a fault that could only make a green run red proves nothing"


@pytest.mark.parametrize("words", [[], ["exit_zero"], ["nothing", "--clean"], ["exit_zero", "--other"]])
def test_a_wrong_command_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 4
    assert "usage" in capsys.readouterr().err


def test_a_report_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert said_in(tmp_path, "audit.lost") == (frozenset(), "")
