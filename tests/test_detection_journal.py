"""harness.detection.journal: what was measured comes back, and no run of other code or another machine goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.detection.journal import Header, digest, header, kept, read
from harness.judge.calibrate_records import NotARecord

HEADER = Header("kill matrix", "CPU", "2026-01-02", "python -m x", "1 core", {"torch": "2"}, "abc", (("hang", "why"),))


@dataclass(frozen=True)
class One:
    name: str


def one(values: Mapping[str, Any]) -> One:
    return One(values["name"])


def fill(path: Path, *names: str, first: Header = HEADER) -> list[One]:
    with kept(path, first, one) as (before, keep):
        for name in names:
            keep(One(name))
    return before


def test_a_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert fill(path, "a", "b") == []
    assert fill(path, "c") == [One("a"), One("b")]
    found = read(path, "kill matrix", one)
    assert (found.header, found.records) == (HEADER, (One("a"), One("b"), One("c")))
    assert list(tmp_path.iterdir()) == [path]


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    fill(path, "a", "b")
    path.write_text(path.read_text()[:-5])
    assert fill(path, "b") == [One("a")]
    assert read(path, "kill matrix", one).records == (One("a"), One("b"))


@pytest.mark.parametrize("changed", [{"machine": "GPU"}, {"versions": {"torch": "3"}}, {"sources": "def"}])
def test_other_code_and_other_machines_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = tmp_path / "a.jsonl"
    fill(path, "a")
    with pytest.raises(NotARecord, match=f"other {next(iter(changed))}"):
        fill(path, first=replace(HEADER, **changed))
    assert read(path, "kill matrix", one).records == (One("a"),)
    assert fill(path, first=replace(HEADER, date="later", command="another")) == [One("a")]


@pytest.mark.parametrize("text", ["", "{}\n", "x\n", '{"run": {"kind": "margins"}}\n', '{"record": {"name": "a"}}\n'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(NotARecord):
        read(tmp_path / "a.jsonl", "kill matrix", one)


def test_another_kind_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "a.jsonl", "a")
    with pytest.raises(NotARecord, match="kill matrix, not margins"):
        read(tmp_path / "a.jsonl", "margins", one)


def test_nothing_is_kept_without_a_path() -> None:
    with kept(None, HEADER, one) as (before, keep):
        keep(One("a"))
    assert before == []


def test_the_header_says_where_and_of_which_code(tmp_path: Path) -> None:
    made = header("margins", "python -m x", [("hang", "why")])
    assert made.machine
    assert made.versions["torch"]
    assert made.skipped == (("hang", "why"),)
    assert json.dumps(dict(made.versions))
    for package in ("cases", "harness"):
        (tmp_path / package).mkdir()
    (tmp_path / "cases" / "a.py").write_text("1")
    before = digest(tmp_path)
    (tmp_path / "cases" / "a.txt").write_text("no code")
    assert digest(tmp_path) == before
    (tmp_path / "cases" / "a.py").write_text("2")
    assert digest(tmp_path) != before
    (tmp_path / "cases" / "a.py").rename(tmp_path / "cases" / "b.py")
    assert len({digest(tmp_path), before, made.sources}) == 3
