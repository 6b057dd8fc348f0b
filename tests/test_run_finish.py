from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path

import pytest

from harness.report import RunInfo, read_results
from harness.run import run_dir
from harness.run.finish import decide, digest, finish, git_state
from harness.run.gpus import Gpu
from harness.run.journal import JournalWriter
from harness.run.reconcile import Ending, Reconciled, reconcile
from harness.types import Evidence, Verdict
from tests.support.baselines import entry, ran, use
from tests.support.cells import Book, cell, plan, recorded, result

TODAY = datetime.date(2026, 1, 31)


def test_everything_is_written_and_stands_in_its_final_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_dir.create("r1", None)
    writer = JournalWriter(run.journal, "gw0", 1)
    host = {"arch": "sm90", "versions": {"torch": "2.13.0"}, "gpus": [{"name": "H200", "memory_mib": 143771}]}
    writer.write("host", host=host)
    started = (datetime.datetime.now().astimezone() - datetime.timedelta(seconds=5)).isoformat()
    made = plan(2, workers=2, command=("python", "runner.py"), env={"TORCH_LOGS": "x"}, started=started, notes=("n",))
    finished = finish(run, made, recorded(run, made, [result(one) for one in made.cells]), rounds=3)
    assert finished.directory == Path("reports/r1")
    stored = json.loads((tmp_path / "reports" / "r1" / "run.json").read_text())
    assert stored["versions"] == {"torch": "2.13.0"}
    assert stored["host"] == {"arch": "sm90", "gpus": "name H200, memory_mib 143771"}
    assert (stored["env"], stored["notes"], stored["rounds"]) == ({"TORCH_LOGS": "x"}, ["n"], 3)
    assert 5 <= stored["seconds"] < 60
    assert (stored["exit_code"], stored["totals"]["results"]) == (0, 2)
    assert len(read_results(tmp_path / "reports" / "latest")) == 2


def test_what_comes_last_stands_there_when_the_run_is_published_or_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = []
    run, made = run_dir.create("r1", None), plan(1)

    def last(info: RunInfo) -> None:
        seen.append((info.exit_code, (run.work / "report.html").exists(), run.final.exists()))
        (run.work / "answer").write_text("yes")

    finish(run, made, recorded(run, made, [result(cell(0))]), rounds=1, last=last)
    assert (seen, (run.final / "answer").read_text()) == ([(0, True, False)], "yes")

    def full(info: RunInfo) -> None:
        raise OSError("disk full")

    other = run_dir.create("r2", None)
    state = recorded(other, made, [result(cell(0))])
    with pytest.raises(OSError, match="disk full"):
        finish(other, made, state, rounds=1, last=full)
    assert not other.final.exists()


@pytest.mark.parametrize(
    ("verdict", "options", "code"),
    [
        (Verdict.PASS, {}, 0),
        (Verdict.FAIL, {}, 1),
        (Verdict.PASS, {"interrupted": True}, 2),
        (Verdict.PASS, {"stuck": True}, 3),
        (Verdict.PASS, {"interrupted": True, "stuck": True}, 2),
    ],
)
def test_exit_codes(verdict: Verdict, options: dict[str, bool], code: int) -> None:
    state = Reconciled((result(cell(0), verdict),))
    assert decide(plan(1), state, **{"interrupted": False, "stuck": False, **options})[0] == code


@pytest.mark.parametrize(("gemms", "code", "words"), [(6, 0, "all as expected"), (7, 1, "worse than the baseline")])
def test_a_run_is_held_against_its_baseline(
    gemms: int, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = plan(1, baseline=use(entry(0, fp8_gemms=gemms)))
    run = run_dir.create("r1", None)
    finished = finish(run, made, recorded(run, made, [ran(0)]), rounds=1)
    assert (finished.info.exit_code, finished.info.exit_reason) == (code, words)
    stored = json.loads((tmp_path / "reports" / "r1" / "run.json").read_text())["baseline"]
    assert (stored["file"], stored["compared"], len(stored["findings"])) == ("b.json", 1, code)


def test_without_a_baseline_there_is_no_word_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert finish(run_dir.create("r1", None), plan(1), Reconciled((ran(0),)), rounds=1).info.baseline is None


def test_a_fault_of_the_harness_outranks_green_cells_and_is_named() -> None:
    state = Reconciled((result(cell(0)),), faults=("gw0-1.jsonl:4: end of a cell that is not in the plan: x",))
    code, reason = decide(plan(1), state, interrupted=False, stuck=False)
    assert (code, "not in the plan: x" in reason) == (3, True)


def test_green_cells_without_the_required_evidence_are_no_green_run() -> None:
    state = Reconciled((result(cell(0), evidence=Evidence.TRACED),))
    assert decide(plan(1), state, interrupted=False, stuck=False)[0] == 1
    assert decide(plan(1, require="traced"), state, interrupted=False, stuck=False)[0] == 0


def test_a_missing_cell_makes_the_run_red_and_x_does_not() -> None:
    made = plan(2)
    missing = reconcile(made, Book().ran(cell(0)).journal, Ending(), today=TODAY)
    assert decide(made, missing, interrupted=False, stuck=False)[0] == 1
    stopped = Ending(stopped_by_maxfail=True)
    left_out = reconcile(made, Book().ran(cell(0)).journal, stopped, today=TODAY)
    assert decide(made, left_out, interrupted=False, stuck=False)[0] == 0


def test_the_digest_names_the_selection_and_its_order() -> None:
    assert digest(plan(2)) == digest(plan(2))
    assert digest(plan(2)) != digest(plan(3))
    assert digest(plan(2)) != digest(plan(2, cells=tuple(reversed(plan(2).cells))))


def test_the_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    assert git_state(tmp_path) == ("", False)
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "first")
    commit, dirty = git_state(tmp_path)
    assert (len(commit), dirty) == (40, False)
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == (commit, True)


def test_the_machine_is_told_as_the_whole_run_saw_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker sees one GPU, and no process saw them all."""
    monkeypatch.chdir(tmp_path)
    run = run_dir.create("r1", None)
    made = plan(2, gpus=(Gpu(0, "2", "GPU-2", "H200", 143771), Gpu(1, "0", "GPU-0", "H200", 143771)))
    for worker, gpu, rss, held in (("gw0", made.gpus[0], 900, 400), ("gw1", made.gpus[1], 1000, 300)):
        writer = JournalWriter(run.journal, worker, 1)
        writer.write("lease", gpu=gpu, alone=False, in_use_mib=None)
        writer.write("host", host={"arch": "sm90", "gpus": [{"name": "H200"}]})
        writer.write("end", result=result(made.cells[0]), rss_mib=rss, gpu_mib=held)
        writer.write("end", result=result(made.cells[1], Verdict.OOM), rss_mib=rss, gpu_mib=140000)
    info = finish(run, made, Reconciled(tuple(result(one) for one in made.cells)), rounds=1).info
    assert info.host == {
        "arch": "sm90",
        "gpus": "index 0, name H200, memory_mib 143771, uuid GPU-2; index 1, name H200, memory_mib 143771, uuid GPU-0",
        "gpu_workers": "GPU 0: gw0; GPU 1: gw1",
        "worker_peak_mib": "1000",
        "worker_gpu_peak_mib": "400",
    }
