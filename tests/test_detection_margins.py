"""python -m harness.detection.margins: seeds that are drawn are told, near ones are exit status 1."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.detection import command, margins, readers
from harness.detection.command import GOOD, NOTHING, USAGE, WORK
from harness.detection.margins_measure import BOUND, Distance, Measure, _empty
from harness.types import DATA_KINDS


class Pool:
    """In place of the processes."""

    def __init__(self) -> None:
        self.ran: list[Measure] = []
        self.ratio = 10.0

    def __call__(
        self, function: Any, jobs: Sequence[Measure], workers: int, lost: Any, *, timeout: float
    ) -> Iterator[Distance]:
        for job in jobs:
            self.ran.append(job)
            yield replace(_empty(job), ratio=0.2) if job.twin else replace(_empty(job), kind=BOUND, ratio=self.ratio)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    found = Pool()
    monkeypatch.setattr(command, "isolated", found)
    monkeypatch.setattr(command, "not_looked_at", lambda found: [])
    return found


def test_fixed_seeds_and_every_kind_of_data(pool: Pool) -> None:
    assert margins.main(["--faults", "dgrad_doubled"]) == GOOD
    assert {job.cell.axes.seed for job in pool.ran} == set(margins.SEEDS)
    assert {job.cell.axes.data for job in pool.ran} == set(DATA_KINDS)
    pool.ran = []
    margins.main(["--faults", "dgrad_doubled", "--seeds", "8", "--data", "normal"])
    assert [(job.cell.axes.seed, job.cell.axes.data, job.twin) for job in pool.ran] == [
        (8, "normal", False),
        (8, "normal", True),
    ]


def test_fresh_seeds_are_new_told_and_named_in_the_command(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []
    for _ in range(2):
        pool.ran = []
        margins.main(["--faults", "dgrad_doubled", "--fresh", "2"])
        told = re.search(r"fresh seeds: --seeds ([\d,]+)\n", capsys.readouterr().out)
        assert told is not None
        drawn.append(readers.seeds(told.group(1)))
        assert {job.cell.axes.seed for job in pool.ran} == set(drawn[-1])
    assert drawn[0] != drawn[1]
    seeds, shown = margins.seeds_of(["--fresh", "2", "--data", "normal", "--seeds", "1"], (1,), 2)
    assert shown == ["--seeds", ",".join(map(str, seeds)), "--data", "normal"]
    assert margins.seeds_of(["--seeds", "1"], (1,), 0) == ((1,), ["--seeds", "1"])


def test_a_near_fault_is_work_to_do(
    pool: Pool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.detection.margins_table.not_looked_at", lambda found: [])
    assert margins.main(["--faults", "dgrad_doubled"]) == GOOD
    pool.ratio = 1.5
    assert margins.main(["--faults", "dgrad_doubled"]) == WORK
    assert "dgrad_doubled: only 1.5 of the bound of `numerics.program`" in capsys.readouterr().out


def test_a_record_comes_back_as_it_was(tmp_path: Path, pool: Pool) -> None:
    pool.ratio = float("inf")
    file = tmp_path / "a.jsonl"
    margins.main(["--faults", "dgrad_doubled", "--json", str(file)])
    records = command.journal.read(file, margins.KIND, margins.record).records
    assert len(records) == len(pool.ran)
    assert {one.ratio for one in records} == {float("inf"), 0.2}
    page = tmp_path / "page.md"
    page.write_text("# Mine\n")
    margins.main(["--from-json", str(file), "--write", str(page)])
    assert page.read_text().startswith("# Mine\n\n<!-- margins: ")
    assert "| `dgrad_doubled` | `numerics.program` | 9 | inf | inf |" in page.read_text()


def test_nothing_measured_is_told_apart(pool: Pool) -> None:
    assert margins.main(["--faults", "hang"]) == NOTHING


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fresh", "-3"], "argument --fresh: expected a whole number from 1, got '-3'"),
        (["--fresh", "0"], "argument --fresh: expected a whole number from 1, got '0'"),
        (["--fresh", "few"], "argument --fresh: expected a whole number from 1, got 'few'"),
        (["--seeds", ""], "argument --seeds: expected a whole number from 0 to 2147483647, got ''"),
        (["--data", "nromal"], "argument --data: invalid choice: 'nromal'"),
    ],
)
def test_usage(words: list[str], message: str, pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        margins.main(words)
    assert stop.value.code == USAGE
    assert message in capsys.readouterr().err
    assert pool.ran == []
