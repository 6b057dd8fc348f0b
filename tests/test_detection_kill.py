"""python -m harness.detection.kill: exit status, the file that it goes on with, and the page that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.detection import command, kill
from harness.detection.command import GOOD, INTERRUPTED, NOTHING, USAGE, WORK
from harness.detection.kill_measure import Job, Killed
from harness.faults import FAULTS
from harness.judge.verdict import CHECK_NAMES
from harness.registry import load
from tests.support.kills import killed

PAGE = "# Mine\n\n<!-- kill matrix: CPU -->\nstale\n<!-- end of kill matrix: CPU -->\n\nAfter.\n"


class Pool:
    """In place of the processes: every fault is caught, the first one by every check."""

    def __init__(self) -> None:
        self.ran: list[Job] = []
        self.bad: dict[str, dict[str, Any]] = {}
        self.interrupted_after = 10**6
        self.timeout = 0.0

    def __call__(
        self, function: Any, jobs: Sequence[Job], workers: int, lost: Any, *, timeout: float
    ) -> Iterator[Killed]:
        self.timeout = timeout
        for job in jobs:
            if len(self.ran) == self.interrupted_after:
                raise KeyboardInterrupt
            self.ran.append(job)
            named = load(FAULTS[job.fault]).caught_by
            others = [n for n in CHECK_NAMES if n != named] if job.fault == next(iter(FAULTS)) else []
            yield replace(killed(job.fault, named, *others, seed=job.seed), **self.bad.get(job.fault, {}))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    found = Pool()
    monkeypatch.setattr(command, "isolated", found)
    return found


def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


@pytest.mark.skipif(command.torch.cuda.is_available(), reason="the page's section is named after the CPU")
def test_all_caught_is_written_and_good(tmp_path: Path, pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    at = page(tmp_path)
    assert kill.main(["--write", str(at), "--seeds", "0,5", "-j", "2"]) == GOOD
    text = at.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("\n\nAfter.\n")
    assert "\nstale\n" not in text
    assert "    python -m harness.detection.kill --seeds 0,5\n" in text
    assert {job.seed for job in pool.ran} == {0, 5}
    assert "not measured: hang: `run.timeout`" in capsys.readouterr().out


def test_a_missed_fault_is_work_to_do(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    pool.bad["leaky_exit"] = {"alone": (), "removed": (), "together": ()}
    assert kill.main([]) == WORK
    assert "leaky_exit: `state.unchanged` alone is green at seed 0" in capsys.readouterr().out


def test_a_part_is_measured_and_no_page_written(tmp_path: Path, pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    file = ["--json", str(tmp_path / "a.jsonl")]
    assert kill.main(["--faults", "leaky_exit,scale_doubled", *file]) == GOOD
    assert [job.fault for job in pool.ran] == ["leaky_exit", "scale_doubled"]
    assert "was not measured" not in capsys.readouterr().out
    assert kill.main(["--from-json", file[1]]) == WORK
    told = capsys.readouterr().out
    assert "`hang` was not measured" in told
    assert "`numerics.codes` kills nothing alone" in told
    at = page(tmp_path)
    with pytest.raises(SystemExit) as stop:
        kill.main(["--faults", "leaky_exit", "--write", str(at)])
    assert stop.value.code == USAGE
    assert at.read_text() == PAGE


def test_an_interrupted_run_goes_on_and_failures_are_tried_again(
    tmp_path: Path, pool: Pool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ["--json", str(tmp_path / "a.jsonl")]
    pool.interrupted_after = 3
    pool.bad[next(iter(FAULTS))] = {"error": "the process died: killed"}
    assert kill.main([*file, "--write", str(page(tmp_path))]) == INTERRUPTED
    assert page(tmp_path).read_text() == PAGE
    first = list(pool.ran)
    pool.ran, pool.bad, pool.interrupted_after = [], {}, 10**6
    assert kill.main(file) == GOOD
    assert [job for job in pool.ran if job in first] == first[:1]
    pool.ran = []
    assert kill.main(["--from-json", file[1]]) == GOOD
    assert pool.ran == []
    assert "other code" not in capsys.readouterr().out
    monkeypatch.setattr(command.journal, "digest", lambda root: "of other code")
    assert kill.main(["--from-json", file[1]]) == GOOD
    assert f"{file[1]}: measured with other code" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--faults nobody", "argument --faults: unknown fault 'nobody'"),
        (
            "--faults leaky_exti,leaky_exit,scale_douled",
            "'leaky_exti' (did you mean leaky_exit?); unknown fault 'scale_d",
        ),
        ("--faults=", "unknown fault ''"),
        ("--seeds x", "argument --seeds: expected a whole number from 0 to 2147483647, got 'x'"),
        ("--seeds 1,-2", "got '-2'"),
        ("--seeds 2147483648", "got '2147483648'"),
        ("-j 0", "argument -j: expected a whole number from 1, got '0'"),
        ("-j -1", "got '-1'"),
        ("-j 1.5", "got '1.5'"),
        ("--timeout 0", "argument --timeout: expected a number of seconds above 0, got '0'"),
        ("--timeout nan", "got 'nan'"),
        ("--timeout soon", "got 'soon'"),
        ("--from-json nowhere.jsonl", "argument --from-json: no such file: nowhere.jsonl"),
        ("--json .", "argument --json: . is a directory, a file is needed"),
        ("--json=", "expected a file, got ''"),
        ("--write nowhere.md", "argument --write: no such file: nowhere.md"),
        ("--seed 1", "unrecognized arguments: --seed 1"),
        ("x", "unrecognized arguments: x"),
    ],
)
def test_usage(arguments: str, message: str, pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        kill.main(arguments.split())
    assert stop.value.code == USAGE
    said = capsys.readouterr().err
    assert said.startswith("usage: python -m harness.detection.kill ")
    assert message in said
    assert pool.ran == []


def test_each_fault_is_measured_once_and_within_the_time_that_was_given(pool: Pool) -> None:
    assert kill.main(["--faults", "leaky_exit,leaky_exit", "--timeout", "7.5"]) == GOOD
    assert [job.fault for job in pool.ran] == ["leaky_exit"]
    assert pool.timeout == 7.5


def test_other_files_and_pages_are_usage_errors(tmp_path: Path, pool: Pool) -> None:
    (tmp_path / "other.jsonl").write_text("{}\n")
    for arguments in (["--json", str(tmp_path / "other.jsonl")], ["--write", str(tmp_path / "nowhere.md")]):
        with pytest.raises(SystemExit) as stop:
            kill.main(arguments)
        assert stop.value.code == USAGE


def test_nothing_measured_is_told_apart(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    assert kill.main(["--faults", "hang"]) == NOTHING
    assert "nothing was measured" in capsys.readouterr().out
