"""``runner.py report`` on whole, damaged and absent runs; what a killed run left is in test_run_signals.py."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.run import run_dir
from harness.run.finish import finish
from harness.types import Verdict
from tests.support.cells import cell, plan, recorded, result


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of two cells, one of them red."""
    monkeypatch.chdir(tmp_path)
    run = run_dir.create("r1", None)
    made = plan(2, started=datetime.datetime.now().astimezone().isoformat())
    finish(run, made, recorded(run, made, (result(cell(0)), result(cell(1), Verdict.FAIL))), rounds=1)
    return tmp_path / "reports" / "r1"


def test_the_latest_run_is_shown_with_its_exit_code(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stored / "report.html").unlink()
    assert main(["report"]) == 1
    assert "exit code 1: 1 cell not as expected" in capsys.readouterr().out
    assert (stored / "report.html").exists()


def test_a_stored_run_is_audited_again(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edit of both files fits together; what the processes recorded does not fit to it."""
    for name in ("results.jsonl", "run.json"):
        path = stored / name
        path.write_text(path.read_text().replace('"numerics.codes"', '"numerics.scales"'))
    assert main(["report", str(stored)]) == 3
    assert "audit.verdict" in capsys.readouterr().out


def test_results_cut_short_are_refused_and_not_read_as_fewer(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored / "results.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for text, words in ((lines[0], "cut short?"), (lines[0] + lines[1][:40], "cut short")):
        path.write_text(text)
        assert main(["report", str(stored)]) == 4
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["nowhere"]])
def test_no_run_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 4
    assert "run.json: can't be read: No such file" in capsys.readouterr().err


def test_edited_results_are_refused_and_nothing_is_made_of_them(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, before = stored / "results.jsonl", (stored / "junit.xml").read_bytes()
    path.write_text(path.read_text().replace('"verdict": "fail"', '"verdict": "pass"'))
    assert main(["report", str(stored)]) == 4
    error = capsys.readouterr().err
    assert "by_verdict.fail 0 against 1" in error
    assert "gating_reds 0 against 1" in error
    assert (stored / "junit.xml").read_bytes() == before
