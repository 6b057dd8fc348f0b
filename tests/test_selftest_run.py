"""The run beneath a selftest: what was wrong with the run itself, and Ctrl-C, which keeps what was done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from harness.run.finish import STUCK
from harness.selftest import run as module
from harness.selftest.plan import Selftest
from harness.types import Verdict
from tests.support.cells import cell, result
from tests.support.running import RUNNER

WORDS = (Verdict.PASS, Verdict.FAIL, Verdict.SKIP)
SLEEPS = """\
import time
from contextlib import contextmanager

from harness.faults.fault import Fault


@contextmanager
def sleep(provider):
    time.sleep(600)
    yield provider


FAULT = Fault("sleeps", "nothing", "state.unchanged", sleep, where={"nesting": "flat", "backend": "eager"})
"""


@pytest.mark.parametrize(
    ("stuck", "stopped", "audit", "problems"),
    [
        (False, False, [], ()),
        (True, False, [], (STUCK,)),
        (True, True, [], ()),
        (True, False, ["audit.lost: a cell"], (STUCK, "audit.lost: a cell")),
    ],
)
def test_what_is_wrong_with_the_run_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: bool, stopped: bool, audit: list[str], problems: Any
) -> None:
    state = SimpleNamespace(results=[result(cell(0))], faults=())
    supervisor = SimpleNamespace(usage_error="", stuck=stuck, stopped=stopped)
    info = SimpleNamespace(audit=SimpleNamespace(findings=audit))
    monkeypatch.setattr(module, "_cells", lambda *_: (supervisor, state))

    def finished(supervisor: Any, state: Any, last: Any) -> Any:
        last(info)
        return SimpleNamespace(info=info)

    monkeypatch.setattr(module, "finish_supervised", finished)
    plan, directory = SimpleNamespace(workers=1, timeout=1.0), SimpleNamespace(work=tmp_path, final=tmp_path)
    ran = module.run_selftest(  # type: ignore[arg-type]
        plan, directory, Selftest("x", ()), Console(), 0, lambda ran: f"{ran.problems}"
    )
    assert (tmp_path / "selftest.json").read_text() == f"{problems}"
    assert (ran.problems, ran.interrupted) == (problems, stopped)


def test_progress_calls_a_red_that_was_wanted_caught() -> None:
    faulty, twin = cell(0), cell(1)
    words = [module._word(result(one, verdict), {faulty.id}) for one in (faulty, twin) for verdict in WORDS]
    assert words == ["caught", "not caught", "skip", "clean", "fail without a fault", "skip without a fault"]


def until_it_sleeps(tmp_path: Path) -> subprocess.Popen[str]:
    """A selftest of three faults, the first of which has been run, while the second sleeps."""
    (tmp_path / "sleeping.py").write_text(SLEEPS)
    (tmp_path / "own.yaml").write_text("schema_version: 1\nfaults: [leaky_exit, sleeping:FAULT, lost_cell]\n")
    process = subprocess.Popen(
        [sys.executable, str(RUNNER), "selftest", "--matrix", "own.yaml", "-n", "1", "--report-dir", "out"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not any("sleeping:FAULT" in one and '"type": "start"' in one for one in _journal(tmp_path)):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    return process


def ends(tmp_path: Path) -> dict[str, tuple[str, str]]:
    rows = json.loads((tmp_path / "out" / "selftest.json").read_text())["outcomes"]
    return {row["fault"]: (row["end"], row["reason"] if row["end"] != "caught" else "") for row in rows}


def test_ctrl_c_keeps_what_was_done_and_names_what_was_not_run(tmp_path: Path) -> None:
    process = until_it_sleeps(tmp_path)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert "exit code 2: interrupted" in said
    assert ends(tmp_path) == {
        "leaky_exit": ("caught", ""),
        "sleeping:FAULT": ("not run", "interrupted"),
        "lost_cell": ("not run", "interrupted"),
    }


def test_of_a_selftest_that_was_killed_report_gives_the_answer_as_far_as_it_goes(tmp_path: Path) -> None:
    process = until_it_sleeps(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    assert not (tmp_path / "out").exists()
    (left,) = tmp_path.glob(".out.*.partial")
    done = subprocess.run(
        [sys.executable, str(RUNNER), "report", str(left)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert ends(tmp_path) == {
        "leaky_exit": ("caught", ""),
        "sleeping:FAULT": ("not run", "interrupted"),
        "lost_cell": ("not run", "the selftest was killed before it had run"),
    }


def _journal(directory: Path) -> list[str]:
    files = directory.glob(".*.partial/process/journal/*.jsonl")
    return [line for file in files for line in file.read_text().splitlines()]
