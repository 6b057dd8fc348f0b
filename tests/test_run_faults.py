"""Tests of the tester: every way in which a cell can take its process down, and the good twin beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.types import CellResult
from tests.support.running import Ran, cell_id, front, plain, waiver, write_matrix

CELLS = 30
# Cell (its seed) -> what its executor does, the verdict it must get, and what the reason must say.
FAULTS: Mapping[int, tuple[str, str, str]] = {
    1: ("segv", "crash", "Segmentation fault"),
    3: ("hang", "timeout", "still running after 2 s"),
    4: ("hang_in_c", "timeout", "still running after 2 s"),
    6: ("sigkill", "crash", "no stack: killed from outside or by the out-of-memory killer"),
    7: ("exit", "crash", "exit code 7 in the middle of the cell"),
    9: ("memory_error", "oom", "MemoryError: no room"),
    10: ("cuda_oom", "oom", "CUDA out of memory"),
    12: ("oom_once", "flaky", "out of memory beside other cells, pass alone"),
    13: ("infra_once", "pass", ""),
    14: ("infra", "infra", "got infra"),
    16: ("bug", "error", "KeyError: 'a bug of the harness'"),
    17: ("sys_exit", "error", "SystemExit"),
    18: ("fail", "fail", "fake.check"),
    19: ("xfail", "xfail", ""),
    20: ("skip", "skip", "no such kernel here"),
    21: ("quarantined", "fail", "fake.check"),
    22: ("cut_short", "error", "the line is cut short"),
    24: ("end_twice", "error", "reported 2 times (pass)"),
    25: ("end_twice_otherwise", "flaky", "fail then pass"),
    26: ("die_after_recording", "pass", ""),
    28: ("retire", "fail", "fake.check"),
}
BEHAVIOURS = {seed: behaviour for seed, (behaviour, _, _) in FAULTS.items()}
VERDICTS = {seed: FAULTS[seed][1] if seed in FAULTS else "pass" for seed in range(CELLS)}


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    directory = tmp_path_factory.mktemp("two_workers")
    write_matrix(directory, CELLS, "waivers:\n" + waiver("xfail", 19) + waiver("quarantine", 21))
    return front(directory, "-n", "2", "--timeout", "2", faults=BEHAVIOURS)


@pytest.mark.parametrize("seed", FAULTS, ids=[fault[0] for fault in FAULTS.values()])
def test_verdict_and_reason(two_workers: Ran, seed: int) -> None:
    _, verdict, reason = FAULTS[seed]
    result = two_workers.results[seed]
    assert (result.verdict.value, result.id) == (verdict, cell_id(seed))
    assert reason in result.reason
    if result.verdict.is_red:
        assert result.signature


def test_every_cell_has_exactly_one_result_and_the_run_is_red(two_workers: Ran) -> None:
    assert two_workers.code == 1
    assert two_workers.verdicts == VERDICTS
    assert list(two_workers.results) == list(range(CELLS)), "results stand in the plan's order"
    assert two_workers.run["exit_code"] == 1


def test_stacks_point_into_the_users_code(two_workers: Ran) -> None:
    for seed in (1, 3, 4):
        result = two_workers.results[seed]
        assert f"in {BEHAVIOURS[seed]}" in result.detail
        assert "fake_cells.py:" in result.findings[0].site
        assert "_pytest" not in result.detail, "pytest's own frames explain nothing"
    assert two_workers.results[6].detail == ""


def test_what_cpp_said_before_it_aborted_is_kept(two_workers: Ran) -> None:
    assert "what()" in two_workers.results[1].detail or "c10::Error" in two_workers.results[1].detail


def test_retries_are_recorded_and_nothing_else_is_retried(two_workers: Ran) -> None:
    def attempts(seed: int) -> list[str]:
        return [attempt.verdict.value for attempt in two_workers.results[seed].attempts]

    assert attempts(13) == ["infra", "pass"]
    assert attempts(14) == ["infra", "infra"]
    assert attempts(12) == ["oom", "pass"]
    assert attempts(9) == ["oom", "oom"]
    assert attempts(25) == ["fail", "pass"]
    assert attempts(1) == ["crash"]
    assert any("retried alone" in note for note in two_workers.results[13].notes)
    retried = [seed for seed, result in two_workers.results.items() if len(result.attempts) > 1]
    assert retried == [9, 10, 12, 13, 14, 24, 25]


def test_a_quarantined_red_is_shown_and_does_not_gate(two_workers: Ran) -> None:
    assert not two_workers.results[21].gates


def test_repro_names_the_cell_and_no_workers(two_workers: Ran) -> None:
    assert two_workers.results[1].repro == f"python runner.py --matrix m.yaml --cell '{cell_id(1)}' -n 0"


# One of each kind, for the runs that only have to agree.
SOME = ["segv", "hang_in_c", "sigkill", "oom_once", "bug", "fail", "cut_short", "end_twice"]
WAYS: Mapping[str, Callable[[Path, Mapping[int, str]], Ran]] = {
    "no worker": lambda path, faults: front(path, "-n", "0", "--timeout", "1", faults=faults),
    "one worker": lambda path, faults: front(path, "-n", "1", "--timeout", "1", faults=faults),
    "shuffled": lambda path, faults: front(path, "-n", "2", "--timeout", "1", "--shuffle", "7", faults=faults),
    "plain pytest": lambda path, faults: plain(path, "--harness-timeout", "1", faults=faults),
    "plain pytest -n 2": lambda path, faults: plain(path, "-n", "2", "--harness-timeout", "1", faults=faults),
}


@pytest.mark.parametrize("way", WAYS)
def test_same_verdicts_however_it_is_run(tmp_path: Path, two_workers: Ran, way: str) -> None:
    write_matrix(tmp_path, 26)
    faults = {seed: behaviour for seed, behaviour in BEHAVIOURS.items() if behaviour in SOME}
    ran = WAYS[way](tmp_path, faults)
    assert ran.code == 1, ran.output
    assert ran.verdicts == {seed: VERDICTS[seed] if seed in faults else "pass" for seed in range(26)}
    for seed in (1, 16, 18, 24):
        assert _said(ran.results[seed]) == _said(two_workers.results[seed])


def _said(result: CellResult) -> tuple[str, str]:
    return result.reason, result.signature


@pytest.mark.parametrize("way", WAYS)
def test_the_good_twin_is_green(tmp_path: Path, way: str) -> None:
    write_matrix(tmp_path, 4)
    ran = WAYS[way](tmp_path, {})
    assert (ran.code, ran.verdicts) == (0, dict.fromkeys(range(4), "pass")), ran.output
    assert [len(result.attempts) for result in ran.results.values()] == [1] * 4


@pytest.mark.parametrize(("run", "cells"), [(front, 30), (plain, 13)])
def test_eleven_crashes_in_one_run(tmp_path: Path, run: Callable[..., Ran], cells: int) -> None:
    """pytest-xdist alone gives up after four restarts a worker and drops the rest."""
    write_matrix(tmp_path, cells)
    crashing = {1 + seed * (cells // 12): "segv" for seed in range(10)} | {0: "sigkill"}
    ran = run(tmp_path, "-n", "2", faults=crashing)
    assert (ran.code, len(crashing)) == (1, 11)
    assert ran.verdicts == {seed: "crash" if seed in crashing else "pass" for seed in range(cells)}
    assert ran.run["rounds"] == 1, "workers were replaced, pytest was not started again"


def test_a_result_of_an_unplanned_cell_is_an_internal_error(tmp_path: Path) -> None:
    write_matrix(tmp_path, 4)
    ran = front(tmp_path, "-n", "1", faults={2: "unplanned"})
    assert ran.code == 3
    assert "not in the plan: toy_linear[nobody=planned]" in ran.output
    assert len(ran.results) == 4


def test_a_killed_pytest_costs_no_cell(tmp_path: Path) -> None:
    write_matrix(tmp_path, 12)
    ran = front(tmp_path, "-n", "2", faults={0: "kill_pytest"})
    assert ran.code == 0, ran.output
    assert set(ran.verdicts.values()) == {"pass"}
    assert ran.run["rounds"] > 1
    assert "was killed by signal 9" in ran.output


@pytest.mark.parametrize("workers", ["0", "2"])
def test_isolate_gives_every_cell_a_process(tmp_path: Path, workers: str) -> None:
    write_matrix(tmp_path, 4)
    ran = front(tmp_path, "-n", workers, "--isolate")
    assert (ran.code, set(ran.verdicts.values())) == (0, {"pass"})
    journals = [path.name for path in (ran.report / "process" / "journal").iterdir() if "controller" not in path.name]
    assert len(journals) >= 4


def test_retired_worker_runs_nothing_more(tmp_path: Path) -> None:
    """After a sticky CUDA error every later call of the process fails: it must not get another cell."""
    write_matrix(tmp_path, 5)
    ran = front(tmp_path, "-n", "1", faults={1: "retire"})
    assert ran.verdicts == {0: "pass", 1: "fail", 2: "pass", 3: "pass", 4: "pass"}
    ids = [line for line in _journal_of(ran, cell_id(1)).splitlines() if '"type": "start"' in line]
    assert cell_id(1) in ids[-1]


def _journal_of(ran: Ran, cell: str) -> str:
    files = [path.read_text() for path in (ran.report / "process" / "journal").glob("*-gw*.jsonl")]
    return next(text for text in files if '"start"' in text and cell in text)
