from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.faults import stages
from harness.registry import LoadError, load
from harness.run import run_dir
from harness.run.cell_process import IN_PROCESS, CellProcess, Unusable
from harness.run.journal import read_journal
from harness.run.plan_file import Round
from harness.run.postmortem import EXIT_JOURNAL
from harness.run.run_dir import RunDir
from harness.types import RETIRE_WORKER, Cell, CellResult, Spec, Verdict
from tests.support.cells import cell, plan, result


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.chdir(tmp_path)
    return run_dir.create("r1", None)


@pytest.fixture
def process(run: RunDir) -> Iterator[Callable[..., CellProcess]]:
    made: list[CellProcess] = []

    def make(execute: Callable[[Cell], CellResult] = result, worker: str = "gw0", **changes: Any) -> CellProcess:
        def call(of: Cell, *, timeout: float | None) -> CellResult:
            return execute(of)

        one = CellProcess(run, plan(1, **changes), Round(1, ()), worker, execute=call)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def raising(error: BaseException) -> Callable[[Cell], CellResult]:
    def execute(of: Cell) -> CellResult:
        raise error

    return execute


Make = Callable[..., CellProcess]


def kinds(run: RunDir) -> list[str]:
    return [record.type for record in read_journal(run.journal).records]


def test_start_and_end_are_recorded_and_the_result_returned(run: RunDir, process: Make) -> None:
    one = process()
    assert one.run(cell(0)) == result(cell(0))
    assert kinds(run) == ["start", "end"]
    assert not one.retired


@pytest.mark.parametrize(
    ("error", "verdict", "words"),
    [
        (KeyError("x"), Verdict.ERROR, "KeyError: 'x'"),
        (SystemExit(0), Verdict.ERROR, "SystemExit: 0"),
        (MemoryError("none left"), Verdict.OOM, "none left"),
        (RuntimeError("CUDA out of memory"), Verdict.OOM, "CUDA out of memory"),
        (OSError(28, "No space left on device"), Verdict.INFRA, "No space left"),
    ],
)
def test_an_exception_of_the_executor_is_a_result(
    run: RunDir, process: Make, error: BaseException, verdict: Verdict, words: str
) -> None:
    found = process(raising(error)).run(cell(0))
    assert (found.verdict, kinds(run)) == (verdict, ["start", "end"])
    assert words in found.reason
    assert "Traceback" in found.detail


def test_the_cause_of_an_exception_counts_too(process: Make) -> None:
    def execute(of: Cell) -> CellResult:
        try:
            raise MemoryError("deep down")
        except MemoryError as error:
            raise ValueError("wrapped") from error

    assert process(execute).run(cell(0)).verdict is Verdict.OOM


def test_a_lost_cuda_context_retires_the_process(process: Make) -> None:
    one = process(raising(RuntimeError("CUDA error: an illegal memory access was encountered")))
    assert one.run(cell(0)).notes == (RETIRE_WORKER,)
    assert one.retired


def test_a_note_or_isolation_retires_the_process(process: Make) -> None:
    noted = process(lambda of: result(of, notes=(RETIRE_WORKER,)))
    noted.run(cell(0))
    isolated = process(isolate=True)
    isolated.run(cell(0))
    assert noted.retired
    assert isolated.retired


def test_a_case_that_can_not_be_imported_is_recorded_as_the_users(run: RunDir, process: Make) -> None:
    with pytest.raises(Unusable, match=r"mine\.py:3"):
        process(raising(LoadError("mine.py:3: NameError"))).run(cell(0))
    assert kinds(run) == ["start", "usage"]


@pytest.mark.parametrize("error", [LoadError("mine.py:3: NameError"), ImportError("libcudart.so.13 not found")])
def test_preparing_reports_what_can_not_be_imported(run: RunDir, process: Make, error: Exception) -> None:
    def preload() -> None:
        raise error

    with pytest.raises(Unusable):
        process().prepare(lambda: {}, preload)
    assert kinds(run) == ["usage"]


def test_preparing_records_the_machine(run: RunDir, process: Make) -> None:
    process().prepare(lambda: {"arch": "sm90"}, lambda: None)
    (record,) = read_journal(run.journal).records
    assert (record.type, record.data["host"], record.data["run"]) == ("host", {"arch": "sm90"}, plan(1).run_id)


def interrupted(of: Cell) -> CellResult:
    signal.raise_signal(signal.SIGINT)
    return result(of)


def test_ctrl_c_is_not_a_result(run: RunDir, process: Make) -> None:
    with pytest.raises(KeyboardInterrupt):
        process(interrupted).run(cell(0))
    assert kinds(run) == ["start"]


@pytest.mark.parametrize(
    ("error", "got"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt, raised by the program itself: no Ctrl-C came"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit("early"), "GeneratorExit: early"),
    ],
)
def test_what_is_no_exception_and_no_ctrl_c_is_named_with_its_line(
    run: RunDir, process: Make, error: BaseException, got: str
) -> None:
    found = process(raising(error)).run(cell(0))
    (finding,) = found.findings
    assert (found.verdict, finding.check, finding.got) == (Verdict.ERROR, "error.unexpected", got)
    assert finding.site.startswith("tests/test_run_cell_process.py:")
    assert kinds(run) == ["start", "end"]


def test_how_far_a_fault_has_come_is_recorded_of_its_own_cell_alone(run: RunDir, process: Make) -> None:
    def execute(of: Cell) -> CellResult:
        stages.reached(stages.APPLIED)
        return result(of)

    one = process(execute)
    one.run(cell(0))
    assert kinds(run) == ["start", "end"]
    one.run(cell(1, provider=Spec("reference+leaky_exit")))
    stages.reached(stages.MENDED)
    assert kinds(run)[2:] == ["start", "fault", "end"]
    (record,) = read_journal(run.journal).of_type("fault")
    assert (record.data["id"], record.attempt, record.data["stage"]) == (cell(1).id, 1, "applied")


def test_a_process_that_a_program_with_a_fault_left_by_no_exception_is_retired(process: Make) -> None:
    one = process(raising(SystemExit(0)))
    one.run(cell(0))
    assert not one.retired
    one.run(cell(1, provider=Spec("reference+leaky_exit")))
    assert one.retired


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit", "GeneratorExit", "ValueError"])
def test_what_a_module_raises_at_import_is_the_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    name = f"raises_{error.lower()}"
    (tmp_path / f"{name}.py").write_text(f"import signal\nraise {error}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(LoadError, match=rf"{name}\.py:2: importing {name} raised {error}"):
        load(f"{name}:FAULT")


def test_ctrl_c_during_an_import_stays_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_import.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        load("slow_import:FAULT")


def test_what_a_worker_prints_goes_to_its_log_and_not_to_the_terminal(
    run: RunDir, process: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    def execute(of: Cell) -> CellResult:
        os.write(1, b"from C\n")
        os.write(2, b"an error\n")
        return result(of)

    process(execute).run(cell(0))
    os.write(1, b"after\n")
    assert capfd.readouterr().out == "after\n"
    (log,) = run.logs.iterdir()
    assert log.read_text() == f"\n=== cell {cell(0).id}\nfrom C\nan error\n"
    process(execute, worker=IN_PROCESS).run(cell(0))
    assert capfd.readouterr().out == "from C\n", "where a debugger may be, nothing is redirected"


def test_a_result_that_can_not_be_stored_ends_the_process(run: RunDir) -> None:
    script = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from harness.run.cell_process import CellProcess; from harness.run.run_dir import RunDir\n"
        "from harness.run.plan_file import Round; from tests.support.cells import cell, plan, result\n"
        "run = RunDir(Path(sys.argv[2]), Path(sys.argv[2]))\n"
        "one = CellProcess(run, plan(1), Round(1, ()), 'main', execute=lambda of, timeout: result(of))\n"
        "os.close(one._journal._fd)\n"
        "one._journal._fd = os.open('/dev/full', os.O_WRONLY)\n"
        "one.run(cell(0))\n"
    )
    root = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", script, root, str(run.work)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_JOURNAL, done.stderr
    assert "No space left on device" in done.stderr
