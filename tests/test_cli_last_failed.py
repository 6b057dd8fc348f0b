from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from harness.cli.errors import UsageError
from harness.cli.last_failed import last_failed
from harness.cli.option import Settings, parse
from harness.cli.run_options import RUN_OPTIONS
from harness.plan import Plan
from harness.run import run_dir
from harness.run.finish import finish
from harness.run.reconcile import Reconciled
from harness.types import Attempt, Verdict
from tests.support.cells import cell, plan, result

PLAN = Plan("m", "m.yaml", "emulated", (), "")


def store(
    run_id: str,
    minute: int,
    verdicts: list[Verdict],
    *,
    matrix: str = "m.yaml",
    out: str | None = None,
    planned: int = 0,
) -> Path:
    run = run_dir.create(run_id, out)
    started = datetime.datetime(2026, 1, 31, 10, minute, tzinfo=datetime.timezone.utc).isoformat()
    results = tuple(
        result(
            cell(seed), verdict, attempts=() if verdict in (Verdict.SKIP, Verdict.ERROR) else (Attempt(verdict, ""),)
        )
        for seed, verdict in enumerate(verdicts)
    )
    made = plan(len(results), matrix=matrix, started=started, planned=planned or len(results))
    finish(run, made, Reconciled(results), rounds=1)
    return run.final


def asked(*words: str) -> Settings:
    return parse(RUN_OPTIONS, ["--last-failed", *words], {})


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_not_asked_for_is_no_condition() -> None:
    assert last_failed(PLAN, parse(RUN_OPTIONS, [], {})) is None


def test_the_reds_of_the_latest_whole_run_of_this_matrix_count() -> None:
    store("b", 1, [Verdict.FAIL, Verdict.PASS])
    store("a", 2, [Verdict.PASS, Verdict.CRASH, Verdict.XFAIL, Verdict.SKIP, Verdict.ERROR])
    store("c", 3, [Verdict.FAIL], matrix="other.yaml")
    assert last_failed(PLAN, asked()) == {cell(1).id, cell(4).id}


def test_a_run_of_some_cells_does_not_make_the_others_forgotten() -> None:
    store("a", 1, [Verdict.FAIL, Verdict.FAIL, Verdict.FAIL])
    store("b", 2, [Verdict.PASS, Verdict.SKIP], planned=3)  # the second was left out by -x
    assert last_failed(PLAN, asked()) == {cell(1).id, cell(2).id}


def test_a_named_report_directory_is_looked_at_too() -> None:
    store("a", 1, [Verdict.FAIL])
    store("b", 2, [Verdict.PASS, Verdict.OOM], out="out")
    assert last_failed(PLAN, asked("--report-dir", "out")) == {cell(1).id}


def test_a_green_run_gives_none_and_no_run_an_error() -> None:
    with pytest.raises(UsageError, match=r"no earlier run of m\.yaml"):
        last_failed(PLAN, asked())
    store("a", 1, [Verdict.PASS])
    assert last_failed(PLAN, asked()) == frozenset()


def test_damaged_results_are_not_taken_for_a_green_run() -> None:
    report = store("a", 1, [Verdict.FAIL, Verdict.FAIL])
    (report / "results.jsonl").write_text("")
    with pytest.raises(UsageError, match="cut short"):
        last_failed(PLAN, asked())
