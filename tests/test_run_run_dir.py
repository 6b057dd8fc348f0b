from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.run import run_dir
from harness.run.run_dir import RunDirError


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_is_invisible_until_it_is_published(tmp_path: Path) -> None:
    run = run_dir.create("r1", None)
    assert [path.name for path in (tmp_path / "reports").iterdir()] == [".r1.partial"]
    (run.work / "run.json").write_text("{}")
    (run.stacks / "gw0-1.txt").touch()
    (run.logs / "gw0-1.log").write_text("said")
    assert run_dir.publish(run) == []
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == ["latest", "r1"]
    assert os.readlink(tmp_path / "reports" / "latest") == "r1"
    kept = sorted(path.name for path in (tmp_path / "reports" / "r1").iterdir())
    assert kept == ["process", "run.json"]
    kept = sorted(path.name for path in (tmp_path / "reports" / "r1" / "process").iterdir())
    assert kept == ["journal", "logs", "rounds"], "empty files are not kept, nor is the lock"


def test_latest_moves_on_and_two_runs_at_once_stay_apart(tmp_path: Path) -> None:
    first, second = run_dir.create("r1", None), run_dir.create("r2", None)
    for run in (first, second):
        (run.work / "run.json").write_text(run.work.name)
    run_dir.publish(second)
    run_dir.publish(first)
    assert os.readlink(tmp_path / "reports" / "latest") == "r1"
    assert (tmp_path / "reports" / "r2" / "run.json").read_text() == ".r2.partial"


def test_a_latest_that_is_in_the_way_costs_a_warning_and_not_the_report(tmp_path: Path) -> None:
    run = run_dir.create("r1", None)
    (tmp_path / "reports" / "latest" / "something").mkdir(parents=True)
    (warning,) = run_dir.publish(run)
    assert "could not be updated" in warning
    assert (tmp_path / "reports" / "r1").is_dir()


def test_a_named_directory_replaces_an_earlier_report_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for text in ("first", "second"):
        run = run_dir.create(text, "out")
        (run.work / "run.json").write_text(text)
        (run.work / text).touch()
        run_dir.publish(run)
    assert (out / "run.json").read_text() == "second"
    assert not (out / "first").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("place", ["file", "file/below", "full"])
def test_what_can_not_hold_a_report_is_refused_before_anything_runs(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunDirError, match=place):
        run_dir.create("r1", place)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_directory_is_welcome(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    run_dir.publish(run_dir.create("r1", "out"))
    assert (tmp_path / "out" / "process" / "journal").is_dir()


def test_discard_leaves_nothing(tmp_path: Path) -> None:
    run_dir.discard(run_dir.create("r1", "deep/out"))
    assert list((tmp_path / "deep").iterdir()) == []


def test_reopen_wants_a_run_that_is_over(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="holds no run"):
        run_dir.reopen(tmp_path)
    run = run_dir.create("r1", "out.d")
    run.plan.write_text("{}")
    (run.process / "lock").unlink()  # what this test's own process holds
    assert run_dir.reopen(run.work).final == tmp_path / "out.d"


def test_names() -> None:
    assert run_dir.final_name(".20260131-101500-4f2a.partial") == "20260131-101500-4f2a"
    assert run_dir.final_name(".out.d.20260131-101500-4f2a.partial") == "out.d"
    assert run_dir.new_run_id() != run_dir.new_run_id()
    assert run_dir.shown(Path.cwd() / "reports" / "x") == Path("reports/x")
    assert run_dir.shown(Path("/elsewhere")) == Path("/elsewhere")
