from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.run.journal import JournalTail, JournalWriter, Process, read_journal
from harness.types import Verdict
from tests.support.cells import cell, result


def test_lines_come_back_as_they_were_written(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "gw0", 3)
    writer.write("start", id=cell(0).id, attempt=2)
    writer.write("end", result=result(cell(0), Verdict.FAIL), attempt=2)
    writer.close()
    start, end = read_journal(tmp_path).records
    assert (start.type, start.worker, start.pid, start.round, start.attempt) == ("start", "gw0", os.getpid(), 3, 2)
    assert start.cell_id == end.cell_id == cell(0).id
    assert end.result == result(cell(0), Verdict.FAIL)
    assert end.source == f"3-gw0-{os.getpid()}.jsonl:2"


def test_each_line_is_there_before_write_returns(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "gw0", 1)
    for count in range(1, 4):
        writer.write("start", id=str(count))
        assert len(writer.path.read_text().splitlines()) == count


def test_a_cut_last_line_is_reported_and_never_a_result(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "gw0", 1)
    writer.write("start", id=cell(0).id)
    writer.write("end", result=result(cell(0)))
    whole = writer.path.read_bytes()
    for length in range(whole.index(b"\n") + 2, len(whole) - 1):
        writer.path.write_bytes(whole[:length])
        journal = read_journal(tmp_path)
        assert [record.type for record in journal.records] == ["start"]
        assert [(line.process, line.cut) for line in journal.broken] == [(Process(1, "gw0", os.getpid()), True)]
    writer.path.write_bytes(whole)
    assert read_journal(tmp_path).broken == ()


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1, 2]",
        '{"type": "start", "worker": "gw0", "pid": 1, "round": 1}',
        '{"type": "start", "worker": "gw0", "pid": 1, "round": 1, "time": 0}',
        '{"type": "end", "worker": "gw0", "pid": 1, "round": 1, "time": 0, "result": {"id": "x"}}',
        '{"type": "end", "worker": "gw0", "pid": 1, "round": 1, "time": 0, "result": null}',
    ],
)
def test_a_line_that_is_no_record_is_reported(tmp_path: Path, line: str) -> None:
    (tmp_path / "1-gw0-1.jsonl").write_text(line + "\n")
    journal = read_journal(tmp_path)
    assert journal.records == ()
    assert [str(broken) for broken in journal.broken] == ["1-gw0-1.jsonl:1: the line is not a record"]


def _line(worker: str, moment: float, name: str) -> str:
    return json.dumps({"type": "start", "worker": worker, "pid": 1, "round": 1, "time": moment, "id": name}) + "\n"


def test_processes_are_merged_by_time_and_a_clock_set_back_swaps_nothing(tmp_path: Path) -> None:
    (tmp_path / "1-gw0-1.jsonl").write_text(_line("gw0", 5, "a") + _line("gw0", 1, "b"))
    (tmp_path / "1-gw1-1.jsonl").write_text(_line("gw1", 2, "c") + _line("gw1", 9, "d"))
    assert [record.cell_id for record in read_journal(tmp_path).records] == ["c", "a", "b", "d"]


def test_tail_gives_each_complete_line_once(tmp_path: Path) -> None:
    tail = JournalTail(tmp_path)
    path = tmp_path / "1-gw0-1.jsonl"
    assert tail.poll() == []
    first, second = _line("gw0", 1, "a"), _line("gw0", 2, "b")
    path.write_text(first + second[:20])
    assert [(record.cell_id, record.source) for record in tail.poll()] == [("a", "1-gw0-1.jsonl:1")]
    assert tail.poll() == []
    path.write_text(first + second)
    assert [(record.cell_id, record.source) for record in tail.poll()] == [("b", "1-gw0-1.jsonl:2")]
