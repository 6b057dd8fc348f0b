"""``runner.py --matrix``: what it refuses, what it selects, what it leaves."""

from __future__ import annotations

import errno
import json
import os
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.cli.errors import UsageError
from harness.cli.main import main
from harness.cli.option import parse
from harness.cli.run import refuse_environment, run_plan
from harness.cli.run_options import RUN_OPTIONS
from harness.cli.selecting import chosen_cells, planned
from harness.run import supervise
from harness.run.journal import JournalWriter
from harness.run.plan_file import Round, RunPlan
from harness.run.rounds import RoundEnd
from harness.run.run_dir import RunDir
from tests.support.fake_cases import fake_cases
from tests.support.running import cell_id, front, front_command, run, waiver, write_matrix


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--cell", "toy_linear[seed=1]"), 4, "no cell 'toy_linear[seed=1]' in m.yaml"),
        (("--select", "recipie=x"), 4, "did you mean recipe?"),
        (("--select", "seed=77"), 5, "nothing to run: "),
        (("--set", "recipe=mxfp9_block_scaling"), 4, "did you mean mxfp8_block_scaling?"),
        (("-k", "((("), 4, "-k '((('"),
        (("-k", "nowhere"), 5, "nothing to run: "),
        (("--last-failed",), 4, "no earlier run of m.yaml under reports/"),
        (("--allow-env", "TORCHDYNAMO_DISABLE"), 4, "not a variable that can be allowed"),
        (("--report-dir", ""), 4, "--report-dir '': expected a directory"),
        (("--report-dir", " ", "--plan"), 4, "expected a directory"),
        (("--report-dir", "file/below"), 4, "can't write a report there: Not a directory"),
    ],
)
def test_bad_requests_are_told_and_leave_nothing(
    directory: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int, words: str
) -> None:
    write_matrix(directory, 2)
    (directory / "file").touch()
    assert main(["--matrix", "m.yaml", *options]) == code
    assert words in capsys.readouterr().err
    assert sorted(path.name for path in directory.iterdir()) == ["file", "m.yaml"]


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ("nothing.yaml", "nothing.yaml: no such file"),
        (".", "is a directory"),
        ("broken.yaml", "broken.yaml:3:1: not YAML"),
    ],
)
def test_bad_matrices_are_told(directory: Path, capsys: pytest.CaptureFixture[str], matrix: str, words: str) -> None:
    (directory / "broken.yaml").write_text("schema_version: 1\nmatrix: [\n")
    assert main(["--matrix", matrix]) == 4
    assert words in capsys.readouterr().err


def test_a_case_that_can_not_be_imported_is_one_message_and_leaves_nothing(tmp_path: Path) -> None:
    write_matrix(tmp_path, 4)
    for workers in ("0", "2"):
        ran = front(tmp_path, "-n", workers, FAKE_BROKEN_CASE="1")
        assert ran.code == 4, ran.output
        assert ran.output.count("cases/mine.py:3: importing cases.mine raised NameError") == 1
        assert "Traceback" not in ran.output
        assert list((tmp_path / "reports").iterdir()) == []


def test_a_provider_that_can_not_be_imported_is_one_message_too(tmp_path: Path) -> None:
    write_matrix(tmp_path, 4)
    ran = front(tmp_path, "-n", "2", faults={2: "load_error"})
    assert (ran.code, "error: cases/mine.py:3: importing" in ran.output) == (4, True), ran.output
    assert list((tmp_path / "reports").iterdir()) == []


def test_switches_that_spoil_a_run_are_refused_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    monkeypatch.setenv("TORCH_COMPILE_JOB_ID", "me")
    with pytest.raises(UsageError) as error:
        refuse_environment(())
    assert "TORCHDYNAMO_DISABLE='1'" in str(error.value)
    assert "TORCH_COMPILE_JOB_ID='me'" in str(error.value)
    monkeypatch.delenv("TORCHDYNAMO_DISABLE")
    refuse_environment(("TORCH_COMPILE_JOB_ID",))


def test_an_allowed_variable_is_recorded(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1)
    assert front(tmp_path, TORCH_COMPILE_JOB_ID="me").code == 4
    ran = front(tmp_path, "--allow-env", "TORCH_COMPILE_JOB_ID", TORCH_COMPILE_JOB_ID="me")
    assert (ran.code, ran.run["env"]["TORCH_COMPILE_JOB_ID"]) == (0, "me")


def test_plan_shows_cells_and_origins_and_runs_nothing(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_matrix(directory, 3)
    monkeypatch.setenv("FP8_HARNESS_WORKERS", "2")
    assert main(["--matrix", "m.yaml", "--plan", "--select", "seed=1,2", "--timeout", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert cell_id(2) in lines
    assert cell_id(0) not in lines
    assert "  timeout      9  <- --timeout" in lines
    assert "  workers      2  <- FP8_HARNESS_WORKERS" in lines
    assert "  select       seed=1,2  <- --select" in lines
    assert "  color        auto  <- default" in lines
    assert not (directory / "reports").exists()


def test_what_set_leaves_out_is_shown_and_recorded(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("n.yaml").write_text(
        "schema_version: 1\nmatrix: {recipe: [mxfp8_block_scaling], nesting: [flat, deep]}\n", encoding="utf-8"
    )
    words = ["--matrix", "n.yaml", "--plan", "--set", "case=recipe_switch"]
    note = "--set left out 1 cell: case 'recipe_switch' has no program of nesting 'deep', only flat"
    with fake_cases():
        assert main(words) == 0
        assert f"\n\n1 cell\nnote: {note}\n" in capsys.readouterr().out
        settings = parse(RUN_OPTIONS, words, {})
        assert run_plan(planned(settings), (), settings, words).notes == (note,)
        assert main([*words[:3], "--set", "nesting=flat"]) == 0
        assert "note:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        ((), [0, 1, 2, 3, 4, 5]),
        (("--cell", cell_id(4), "--cell", cell_id(1)), [1, 4]),
        (("--select", "seed=1,2", "--select", "seed=5"), [1, 2, 5]),
        (("--select", "seed=1,2", "--select", "recipe=float8_current_scaling"), [1, 2]),
        (("-k", "linear and not seed"), [0]),
        (("--provider", "reference", "--shard", "2/3"), [1, 4]),
        (("--set", "seed=7,8"), [7, 8]),
    ],
)
def test_selections_take_what_they_name(directory: Path, words: tuple[str, ...], seeds: list[int]) -> None:
    settings = parse(RUN_OPTIONS, ["--matrix", str(write_matrix(directory, 6)), *words], {})
    cells = chosen_cells(planned(settings), settings, None)
    assert [cell.axes.seed for cell in cells] == seeds


def test_a_failed_cell_can_be_run_again_by_its_repro_and_by_last_failed(tmp_path: Path) -> None:
    write_matrix(tmp_path, 4)
    first = front(tmp_path, "-n", "1", faults={1: "fail", 2: "segv"})
    assert first.code == 1
    again = front(tmp_path, "--last-failed", "-n", "0", faults={1: "fail"})
    assert (again.code, again.verdicts) == (1, {1: "fail", 2: "pass"})
    last = front(tmp_path, "--last-failed", "-n", "0")
    assert (last.code, last.verdicts) == (0, {1: "pass"})
    nothing = front(tmp_path, "--last-failed")
    assert (nothing.code, "no cell of m.yaml was red when it last ran" in nothing.output) == (5, True)


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("fault", ["fail", "segv"])
def test_x_stops_and_says_what_it_left_out(tmp_path: Path, workers: str, fault: str) -> None:
    write_matrix(tmp_path, 12)
    slow = dict.fromkeys(range(4, 12), "slow")  # not done before the red is known
    ran = front(tmp_path, "-x", "-n", workers, faults={1: fault, **slow})
    assert ran.code == 1, ran.output
    assert ran.verdicts[1] == ("crash" if fault == "segv" else "fail")
    left_out = [seed for seed, verdict in ran.verdicts.items() if verdict == "skip"]
    assert left_out
    assert f"{len(left_out)} cells were not run: stopped by -x/--maxfail" in ran.run["notes"]
    assert len(ran.results) == 12


def test_options_reach_the_run_and_are_recorded(tmp_path: Path) -> None:
    write_matrix(tmp_path, 3)
    ran = front(tmp_path, "--set", "seed=7,8", "-n", "1", "--report-dir", "out", "--shuffle", "3", faults={8: "fail"})
    stored = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (ran.code, stored["selected"], stored["workers"]) == (1, 2, 1)
    assert stored["command"][:4] == ["python", "runner.py", "--matrix", "m.yaml"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert lines[1]["repro"] == f"python runner.py --matrix m.yaml --set=seed=7,8 --cell '{cell_id(8)}' -n 0"
    assert not (tmp_path / "reports").exists()


def test_a_matrix_edited_while_it_runs_changes_nothing(tmp_path: Path) -> None:
    """At -n 0 a crash starts pytest again: it must read what was planned, not what the file says by then."""
    write_matrix(tmp_path, 4)
    ran = front(tmp_path, "-n", "0", faults={1: "segv"}, FAKE_EDIT="1")
    assert ran.verdicts == {0: "pass", 1: "crash", 2: "pass", 3: "pass"}


def test_variables_of_the_user_are_kept_and_pytests_are_not_obeyed(tmp_path: Path) -> None:
    write_matrix(tmp_path, 2)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -k nothing --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('the user's own tests')\n")
    ran = front(tmp_path, "-n", "1", TORCH_LOGS="dynamo", PYTEST_ADDOPTS="-k nothing")
    assert (ran.code, len(ran.results)) == (0, 2), ran.output
    assert ran.run["env"]["TORCH_LOGS"] == "dynamo"
    assert ran.run["env"]["PYTEST_ADDOPTS"] == "-k nothing"


def test_two_runs_at_once_keep_apart(tmp_path: Path) -> None:
    write_matrix(tmp_path, 3)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda n: front(tmp_path, "-n", "1", faults={n: "fail"}), (1, 2))
    assert (first.code, second.code) == (1, 1)
    reports = [path for path in (tmp_path / "reports").iterdir() if not path.is_symlink()]
    assert len(reports) == 2
    reds = set()
    for report in reports:
        lines = [json.loads(line) for line in (report / "results.jsonl").read_text().splitlines()]
        assert len(lines) == 3
        reds |= {line["axes"]["seed"] for line in lines if line["verdict"] == "fail"}
    assert reds == {1, 2}
    assert os.readlink(tmp_path / "reports" / "latest") in {report.name for report in reports}


def test_require_is_a_demand_on_whole_plans(directory: Path) -> None:
    def judged(*words: str) -> tuple[str, int]:
        settings = parse(RUN_OPTIONS, ["--matrix", str(write_matrix(directory, 4)), *words], {})
        made = run_plan(planned(settings), (), settings, words)
        return made.require, len(made.notes)

    assert judged() == ("emulated", 0)
    assert judged("--select", "seed=1") == ("emulated", 0)
    for words in (("--cell", "x"), ("--shard", "1/2"), ("--last-failed",)):
        assert judged(*words) == ("traced", 1)


def test_a_run_goes_on_when_nobody_reads_its_output(tmp_path: Path) -> None:
    write_matrix(tmp_path, 3)
    for fault, code in ((None, 0), ("fail", 1)):
        words = shlex.join(front_command("-v", "-n", "1"))
        ran = run(tmp_path, ["bash", "-c", f"set -o pipefail; {words} | true"], {1: fault} if fault else {})
        assert (ran.code, "Traceback" in ran.output) == (code, False), ran.output
        assert ran.run["exit_code"] == code
        assert len(ran.results) == 3
        assert not list(tmp_path.glob("reports/.*.partial"))


def full_disk(started: bool) -> Callable[..., RoundEnd]:
    """A round on a disk that is full, before or after the first cell was started."""

    def run_round(of: RunDir, plan: RunPlan, entry: Round, **arguments: object) -> RoundEnd:
        if started:
            JournalWriter(of.journal, "gw0", entry.number).write("start", id=entry.ids[0], attempt=1)
        raise OSError(errno.ENOSPC, "No space left on device")

    return run_round


@pytest.mark.parametrize("started", [True, False])
def test_a_full_disk_is_told_and_no_defect_of_the_harness(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    write_matrix(directory, 2)
    monkeypatch.setattr(supervise, "run_round", full_disk(started))
    assert main(["--matrix", "m.yaml", "--report-dir", "out/here"]) == (3 if started else 4)
    error = capsys.readouterr().err
    assert f"{directory / 'out'}: the disk is full" in error
    assert "defect" not in error
    assert "Traceback" not in error
    left = list((directory / "out").iterdir())
    assert len(left) == started
    assert all(f"what was recorded is in {path}" in error for path in left)


def test_a_disk_that_is_full_at_once_leaves_nothing(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_plan(path: Path, plan: RunPlan) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_matrix(directory, 2)
    monkeypatch.setattr("harness.cli.run.write_plan", write_plan)
    assert main(["--matrix", "m.yaml"]) == 4
    assert "reports: the disk is full" in capsys.readouterr().err
    assert list((directory / "reports").iterdir()) == []


def test_two_matrices_are_refused_by_name(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_matrix(directory, 1)
    assert main(["--matrix", "other.yaml", "--matrix=m.yaml", "--plan"]) == 4
    assert "--matrix can be given once, not 2 times: other.yaml, m.yaml" in capsys.readouterr().err
    assert main(["--matrix=m.yaml", "--plan"]) == 0


def test_quarantining_the_only_cell_makes_no_green(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1, "waivers:\n" + waiver("quarantine", 0))
    ran = front(tmp_path, "-n", "1", faults={0: "quarantined"})
    assert ran.code == 1, ran.output
    assert "require emulated: NOT met" in ran.output
    assert "not met: only quarantined cells (1 fail)" in ran.output
