"""The plugin under plain pytest, as a user meets it."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.run import run_dir
from harness.run.plan_file import Round
from harness.run.plugin import is_matrix, named_matrix
from harness.run.pytest_plain import PlainRun, merged, refuse_impossible, worker_count
from tests.support.cells import plan
from tests.support.running import ROOT, cell_id, environment, plain, run, write_matrix

pytest_plugins = ["pytester"]


def test_a_pytest_without_a_matrix_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    (tmp_path / "data.yaml").write_text("a: 1\n")
    script = (
        "import sys, pytest\n"
        "code = pytest.main(['-q', '-p', 'harness.run.plugin', '-p', 'no:fp8_harness', 'test_x.py'])\n"
        "print(int(code), sorted(m for m in sys.modules if m.startswith(('harness', 'torch', 'pydantic'))))\n"
    )
    command = [sys.executable, "-c", script]
    env = {**environment(tmp_path, {}, {}), "PYTEST_PLUGINS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 ['harness', 'harness.run', 'harness.run.plugin']", done.stdout


def test_a_matrix_is_a_yaml_with_a_schema_version(tmp_path: Path) -> None:
    matrix, other = tmp_path / "m.yaml", tmp_path / "o.yml"
    matrix.write_text("# comment\nschema_version: 1\n")
    other.write_text("nested:\n  schema_version: 1\n")
    assert (is_matrix(matrix), is_matrix(other), is_matrix(tmp_path / "none.yaml")) == (True, False, False)
    assert named_matrix([str(other), f"{matrix}::toy_linear[a=b]", str(matrix), "test_x.py"]) == matrix
    assert named_matrix(["tests"]) is None


def test_two_matrices_in_one_run_are_refused(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1)
    (tmp_path / "n.yaml").write_text((tmp_path / "m.yaml").read_text())
    ran = plain(tmp_path, "n.yaml")
    assert (ran.code, "one matrix a run, not 2: m.yaml, n.yaml" in ran.output) == (4, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-n", "2", "--dist", "loadfile"), "--dist loadfile loses or repeats cells"),
        (("-n", "2", "--dist", "loadgroup"), "--dist loadgroup"),
        (("-n", "2", "--dist", "loadscope"), "--dist loadscope"),
        (("-n", "2", "--dist", "each"), "--dist each"),
        (("-n", "2", "--max-worker-restart", "0"), "--max-worker-restart=0 drops cells"),
        (("--dist", "load", "--tx", "ssh=elsewhere"), "must be processes of this machine"),
    ],
)
def test_modes_in_which_pytest_loses_cells_are_refused(
    pytester: pytest.Pytester, options: tuple[str, ...], words: str
) -> None:
    with pytest.raises(pytest.UsageError, match=words):
        refuse_impossible(pytester.parseconfig(*options))


@pytest.mark.parametrize(
    "options", [(), ("-n", "2"), ("-n", "2", "--dist", "worksteal"), ("--dist", "load", "--tx", "2*popen")]
)
def test_other_modes_are_not(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    refuse_impossible(pytester.parseconfig(*options))


def test_worksteal_and_a_few_restarts_are_allowed(tmp_path: Path) -> None:
    write_matrix(tmp_path, 5)
    ran = plain(tmp_path, "-n", "2", "--dist", "worksteal", "--max-worker-restart", "1", faults={1: "segv", 2: "segv"})
    assert ran.verdicts == {0: "pass", 1: "crash", 2: "crash", 3: "pass", 4: "pass"}
    assert ran.run["rounds"] == 1


def test_switches_that_spoil_a_run_are_refused(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1)
    ran = plain(tmp_path, TORCHDYNAMO_DISABLE="1")
    assert (ran.code, "TORCHDYNAMO_DISABLE='1' turns torch.compile off" in ran.output) == (4, True)
    assert not (tmp_path / "reports").exists()


def test_python_o_is_refused(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1)
    command = [sys.executable, "-O", "-m", "pytest", "-p", "harness.run.plugin", "-p", "no:fp8_harness", "m.yaml"]
    ran = run(tmp_path, command)
    assert (ran.code, "python -O strips" in ran.output) == (4, True)


def test_every_mistake_of_a_matrix_is_told_without_a_traceback(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1, "nonsense: 1\nrequire: everything\n")
    ran = plain(tmp_path)
    assert ran.code == 4
    assert "m.yaml:7:1: unknown key" in ran.output
    assert "m.yaml:8:10: unknown evidence level" in ran.output
    assert "Traceback" not in ran.output


def test_collect_only_lists_the_cells_and_writes_nothing(tmp_path: Path) -> None:
    write_matrix(tmp_path, 2)
    ran = plain(tmp_path, "--collect-only", "-q", "-n", "2")
    assert ran.code == 0
    assert [line for line in ran.output.splitlines() if "::" in line] == [f"m.yaml::{cell_id(n)}" for n in (0, 1)]
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("workers", [(), ("-n", "0")])
def test_deselected_cells_are_not_missing(tmp_path: Path, workers: tuple[str, ...]) -> None:
    write_matrix(tmp_path, 12)
    ran = plain(tmp_path, "-k", "3", *workers)
    assert (ran.code, ran.verdicts) == (0, {3: "pass"}), ran.output
    assert (ran.run["planned"], ran.run["selected"]) == (12, 1)


def test_one_cell_by_its_node_id(tmp_path: Path) -> None:
    write_matrix(tmp_path, 3)
    command = [sys.executable, "-m", "pytest", "-p", "harness.run.plugin", "-p", "no:fp8_harness"]
    ran = run(tmp_path, [*command, f"m.yaml::{cell_id(2)}"])
    assert (ran.code, ran.verdicts) == (0, {2: "pass"}), ran.output
    assert ran.run["notes"] == [
        "require emulated is not judged: 1 of 3 cells were picked by a node id",
        "1 of 3 planned cells were selected",
    ]


def test_a_time_limit_must_be_one(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1)
    ran = plain(tmp_path, "--harness-timeout", "0")
    assert (ran.code, "--harness-timeout 0: expected a number of seconds above 0" in ran.output) == (4, True)


def test_a_matrix_edited_while_it_runs_changes_nothing(tmp_path: Path) -> None:
    write_matrix(tmp_path, 4)
    ran = plain(tmp_path, "-n", "1", faults={1: "segv"}, FAKE_EDIT="1")
    assert ran.verdicts == {0: "pass", 1: "crash", 2: "pass", 3: "pass"}, ran.output


def test_workers_of_tx_specifications() -> None:
    assert worker_count(["popen", "3*popen"]) == 4


def test_nothing_selected_is_exit_5_and_leaves_nothing(tmp_path: Path) -> None:
    write_matrix(tmp_path, 2)
    ran = plain(tmp_path, "-k", "nowhere", "-n", "0")
    assert ran.code == 5
    assert list((tmp_path / "reports").iterdir()) == []


def test_last_failed_runs_what_was_red(tmp_path: Path) -> None:
    write_matrix(tmp_path, 4)
    assert plain(tmp_path, faults={1: "fail", 2: "segv"}).code == 1
    ran = plain(tmp_path, "--lf")
    assert (ran.code, ran.verdicts) == (0, {1: "pass", 2: "pass"}), ran.output


# With a crash at -n 0 pytest itself is gone; runner.py -n 0 covers that.
@pytest.mark.parametrize(("workers", "fault"), [("0", "fail"), ("1", "fail"), ("1", "segv")])
def test_x_stops_and_names_what_it_left_out(tmp_path: Path, workers: str, fault: str) -> None:
    write_matrix(tmp_path, 9)
    ran = plain(tmp_path, "-x", "-n", workers, faults={1: fault})
    assert ran.code == 1, ran.output
    assert ran.verdicts[1] == ("crash" if fault == "segv" else "fail")
    left_out = [seed for seed, verdict in ran.verdicts.items() if verdict == "skip"]
    assert left_out
    assert ran.results[left_out[0]].reason == "not run: stopped by -x/--maxfail"


def test_tests_beside_the_matrix_keep_their_say(tmp_path: Path) -> None:
    write_matrix(tmp_path, 2)
    (tmp_path / "test_x.py").write_text("def test_x(): assert False\n")
    ran = plain(tmp_path, "test_x.py")
    assert (ran.code, set(ran.verdicts.values())) == (1, {"pass"}), ran.output
    assert ran.run["exit_code"] == 0
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    assert plain(tmp_path, "test_x.py").code == 0


def test_a_broken_test_file_beside_the_matrix_stops_both(tmp_path: Path) -> None:
    write_matrix(tmp_path, 2)
    (tmp_path / "test_x.py").write_text("import nothing_like_it\n")
    ran = plain(tmp_path, "test_x.py", "-n", "0")
    assert ran.code == 2, ran.output
    assert set(ran.verdicts.values()) == {"error"}


@pytest.mark.parametrize("workers", [("-n", "0"), ("-n", "2")])
def test_a_case_that_can_not_be_imported_is_one_clear_message(tmp_path: Path, workers: tuple[str, ...]) -> None:
    write_matrix(tmp_path, 4)
    ran = plain(tmp_path, *workers, FAKE_BROKEN_CASE="1")
    assert ran.code == 4, ran.output
    assert "cases/mine.py:3: importing cases.mine raised NameError: name 'x' is not defined" in ran.output
    assert "Traceback" not in ran.output
    assert list((tmp_path / "reports").iterdir()) == []


def test_an_unwritable_report_directory_is_refused_before_anything_runs(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1)
    (tmp_path / "file").touch()
    ran = plain(tmp_path, "--harness-report-dir", "file/below")
    assert (ran.code, "can't write a report there: Not a directory" in ran.output) == (4, True)


def test_retirement_without_workers_goes_on_in_fresh_processes(tmp_path: Path) -> None:
    write_matrix(tmp_path, 4)
    ran = plain(tmp_path, "-n", "0", faults={1: "retire"})
    assert (ran.code, ran.verdicts) == (1, {0: "pass", 1: "fail", 2: "pass", 3: "pass"}), ran.output


def test_a_crash_without_workers_is_no_green_and_report_recovers_it(tmp_path: Path) -> None:
    write_matrix(tmp_path, 3)
    ran = plain(tmp_path, "-n", "0", faults={1: "segv"})
    assert ran.code not in (0, 5)
    (partial,) = (tmp_path / "reports").glob(".*.partial")
    recovered = run(tmp_path, [sys.executable, str(ROOT / "runner.py"), "report", str(partial)])
    assert recovered.code == 2
    assert "Segmentation fault" in recovered.output


def test_the_header_says_what_protects_the_run(tmp_path: Path) -> None:
    write_matrix(tmp_path, 1)
    assert "1 cells of m.yaml in 1 worker(s)" in plain(tmp_path).output
    assert "in this process: a crash ends the run" in plain(tmp_path, "-n", "0").output


def test_pytests_own_junit_has_every_cell(tmp_path: Path) -> None:
    write_matrix(tmp_path, 3)
    plain(tmp_path, "--junitxml", "own.xml", faults={1: "segv"})
    text = (tmp_path / "own.xml").read_text()
    assert text.count("<testcase") == 3
    assert "Segmentation fault" in text


@pytest.mark.parametrize(
    ("code", "exitstatus", "options", "expected"),
    [
        (0, 0, {}, 0),
        (0, 1, {}, 0),  # pytest saw a first attempt fail that the retry made good
        (0, 1, {"others_failed": True}, 1),
        (1, 0, {}, 1),
        (1, 2, {}, 1),  # -x under xdist
        (2, 2, {}, 2),
        (1, 2, {"gave_up": True}, 2),
        (0, 3, {}, 3),
        (3, 1, {}, 3),
        (4, 2, {}, 4),
        (5, 0, {}, 0),  # every cell deselected, other tests ran
        (5, 5, {}, 5),
    ],
)
def test_exit_codes_of_the_matrix_and_of_pytest_together(
    code: int, exitstatus: int, options: dict[str, bool], expected: int
) -> None:
    assert merged(code, exitstatus, **{"gave_up": False, "others_failed": False, **options}) == expected


PYTEST = [sys.executable, "-m", "pytest", "-p", "harness.run.plugin", "-p", "no:fp8_harness"]
CONFTEST = """
def pytest_collection_modifyitems(config, items):
    gone = [item for item in items if "seed=1" in item.name or "seed=2" in item.name]
    items[:] = [item for item in items if item not in gone]
    {announce}
"""
SAYS = "config.hook.pytest_deselected(items=gone)"


@pytest.mark.parametrize("announce", ["pass", SAYS])
@pytest.mark.parametrize("options", [(), ("-n", "0")])
def test_cells_that_a_conftest_drops_are_missing_and_not_a_smaller_green(
    tmp_path: Path, options: tuple[str, ...], announce: str
) -> None:
    write_matrix(tmp_path, 4)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(announce=announce))
    ran = plain(tmp_path, *options)
    assert ran.code == 1, ran.output
    assert ran.verdicts == {0: "pass", 1: "error", 2: "error", 3: "pass"}
    assert ran.results[1].reason.startswith("not run: dropped by something else than an option of pytest")
    assert ran.run["rounds"] == 1, "nobody runs them behind the conftest's back"


@pytest.mark.parametrize(
    ("options", "seeds"), [(("-k", "not seed"), [0]), (("--deselect", f"m.yaml::{cell_id(1)}"), [0, 2])]
)
def test_what_an_option_takes_away_is_a_smaller_plan_that_says_so(
    tmp_path: Path, options: tuple[str, ...], seeds: list[int]
) -> None:
    write_matrix(tmp_path, 3)
    ran = plain(tmp_path, *options)
    assert (ran.code, ran.verdicts) == (0, dict.fromkeys(seeds, "pass")), ran.output
    assert f"{len(seeds)} of 3 planned cells were selected" in ran.run["notes"]


def test_a_conftest_can_not_hide_behind_an_option(tmp_path: Path) -> None:
    write_matrix(tmp_path, 4)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(announce="pass"))
    ran = plain(tmp_path, "-k", "seed", "-n", "0")
    assert (ran.code, ran.verdicts) == (1, {1: "error", 2: "error", 3: "pass"}), ran.output
    named = run(
        tmp_path,
        [*PYTEST, f"m.yaml::{cell_id(1)}", f"m.yaml::{cell_id(3)}", "-n", "0"],
    )
    assert (named.code, named.verdicts) == (1, {1: "error", 3: "pass"}), named.output


def test_a_conftest_that_drops_every_cell_makes_no_green(tmp_path: Path) -> None:
    write_matrix(tmp_path, 2)
    (tmp_path / "conftest.py").write_text("def pytest_collection_modifyitems(items):\n    items.clear()\n")
    for options in ((), ("-n", "0")):
        ran = plain(tmp_path, *options)
        assert (ran.code, ran.verdicts) == (1, {0: "error", 1: "error"}), ran.output


def test_a_full_disk_is_told_without_a_traceback(tmp_path: Path) -> None:
    made = plan(1, matrix=write_matrix(tmp_path, 1))
    kept = run_dir.create(made.run_id, str(tmp_path / "out"))
    plugin = PlainRun(kept, made, Round(1, (made.cells[0].id,)), None)

    def complete() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert plugin._conclude(SimpleNamespace(plan=made, complete=complete), resume=True) == 3  # type: ignore[arg-type]
    assert (
        plugin._message == f"the run could not go on: {tmp_path}: the disk is full; what was recorded is in {kept.work}"
    )
