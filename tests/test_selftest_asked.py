"""What a selftest is asked is written down before it runs, and can be answered from the run's results alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.faults import FRONT_FAULTS
from harness.registry import load
from harness.run import run_dir
from harness.run.run_dir import RunDir
from harness.selftest.asked import KILLED, outcomes_after, path_in, write_asked
from harness.selftest.front_outcomes import CELL
from harness.selftest.outcome import End
from harness.selftest.plan import Seeded, Selftest
from harness.types import Finding, Spec, Verdict
from tests.support.cells import cell, plan, result

TWIN, FAULTY = cell(0), cell(1, provider=Spec("reference+f"))
LACKING = cell(2, provider=Spec("reference+g"))
CRASH = Finding("run.crash", "the cell ends with a result", "gone")
PLAN = dataclasses.replace(plan(0), cells=(FAULTY, TWIN))
SELFTEST = Selftest(
    "own.yaml",
    (
        Seeded("f", "something", "run.crash", FAULTY, TWIN, report="a#1", dies="SIGSEGV"),
        Seeded("g", "something else", "fp8.gemms", LACKING, TWIN, needs="cuda"),
    ),
    (load(FRONT_FAULTS["lost_cell"]),),
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.chdir(tmp_path)
    made = run_dir.create("r1", None)
    write_asked(made, SELFTEST, {LACKING.id: "needs a CUDA device"})
    return made


@pytest.mark.parametrize(("note", "end"), [("SIGSEGV", End.CAUGHT), ("SIGKILL", End.OTHER)])
def test_the_answer_is_that_of_the_results(run: RunDir, note: str, end: End) -> None:
    died = result(FAULTY, Verdict.CRASH, findings=(CRASH,), reason="gone", notes=(f"its process ended with {note}",))
    file, outcomes = outcomes_after(run, PLAN, {FAULTY.id: died, TWIN.id: result(TWIN)})
    assert file == "own.yaml"
    assert [(one.fault, one.cell, one.end) for one in outcomes] == [
        ("f", FAULTY.id, end),
        ("g", LACKING.id, End.SKIPPED),
        ("lost_cell", CELL, End.NOT_RUN),
    ]
    assert (outcomes[0].report, outcomes[1].reason, outcomes[2].reason) == ("a#1", "needs a CUDA device", KILLED)


def test_what_is_not_there_is_lost(run: RunDir) -> None:
    _, outcomes = outcomes_after(run, PLAN, {})
    assert outcomes[0].end is End.LOST


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"seeded": [{"fault": "f"}], "front": []}'])
def test_a_damaged_file_is_told(run: RunDir, text: str) -> None:
    path_in(run).write_text(text)
    with pytest.raises(ValueError, match=r"selftest\.json|Expecting"):
        outcomes_after(run, PLAN, {})
