"""``runner.py selftest``: its command line, its exit codes, and once the real thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import selftest
from harness.cli.main import main
from harness.cli.option import parse
from harness.selftest.outcome import End, Outcome
from tests.support.running import RUNNER

# Faults that leave their patch and that raise; after them one that does nothing, one that another check sees than it
# says.
OWN = """\
from contextlib import contextmanager, nullcontext

from harness.faults.fault import Fault
from harness.fp8 import ops
from harness.faults.leaky_exit import FAULT as LEAKY

USUAL = {"nesting": "flat", "backend": "eager"}
NOTHING = Fault("nothing", "nothing at all", "state.unchanged", nullcontext, where=USUAL)
LIAR = Fault("liar", "what leaky_exit does", "numerics.scales", LEAKY.apply, where=USUAL)


@contextmanager
def leave(provider):
    multiply = ops.multiply
    ops.multiply = lambda product, *rest: multiply(product, *rest) * (2 if product == "dgrad" else 1)
    yield provider


@contextmanager
def fail(provider):
    raise ValueError("no such seam")
    yield provider


LEAVING = Fault("leaving", "the input gradient is doubled, for good", "numerics.program", leave, where=USUAL)
AFTER = Fault("after", "nothing at all", "numerics.program", nullcontext, where=USUAL)
RAISING = Fault("raising", "nothing", "numerics.program", fail, where=USUAL)
"""

# The same death before the cell, from outside, and where it must be.
DEADLY = """\
import os
import signal
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.fp8 import ToyLinear

USUAL = {"nesting": "flat", "backend": "eager"}


def dying(early, within):
    @contextmanager
    def apply(provider):
        early()
        with patched(ToyLinear, "forward", lambda self, x: within()):
            yield provider

    return Fault("dying", "its process is gone", "run.crash", apply, where=USUAL, dies="exit 9")


def die():
    os._exit(9)


def nothing():
    return None


EARLY = dying(die, die)
OUTSIDE = dying(nothing, lambda: os.kill(os.getpid(), signal.SIGKILL))
WITHIN = dying(nothing, die)
"""


def ran(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    command = [sys.executable, str(RUNNER), "selftest", "--report-dir", "out", *words]
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)


def ends(tmp_path: Path) -> dict[str, str]:
    data = json.loads((tmp_path / "out" / "selftest.json").read_text())
    return {row["fault"]: row["end"] for row in data["outcomes"]}


def test_caught_missed_and_seen_by_another_check_only(tmp_path: Path) -> None:
    (tmp_path / "own_faults.py").write_text(OWN)
    (tmp_path / "own.yaml").write_text("schema_version: 1\nfaults: [leaky_exit, own_faults:NOTHING, own_faults:LIAR]\n")
    done = ran(tmp_path, "--matrix", "own.yaml", "-n", "0")
    assert done.returncode == 1, done.stdout + done.stderr
    assert ends(tmp_path) == {"leaky_exit": "caught", "own_faults:NOTHING": "missed", "own_faults:LIAR": "other"}
    assert "numerics.scales said nothing; fail: state.unchanged" in " ".join(done.stdout.split())
    assert done.stdout.rstrip().endswith("exit code 1: 2 of 3 not caught as they must be")
    # The run beneath is an ordinary one, for whoever wants to look into a fault that was missed.
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_fault_that_leaves_its_patch_is_named_and_nothing_else_is_judged_by_it(tmp_path: Path) -> None:
    (tmp_path / "own_faults.py").write_text(OWN)
    (tmp_path / "own.yaml").write_text(
        "schema_version: 1\nfaults: [own_faults:LEAVING, own_faults:AFTER, own_faults:RAISING]\n"
    )
    done = ran(tmp_path, "--matrix", "own.yaml", "-n", "0")
    assert done.returncode == 1, done.stdout + done.stderr
    assert ends(tmp_path) == {
        "own_faults:LEAVING": "unmended",
        "own_faults:AFTER": "missed",
        "own_faults:RAISING": "raised",
    }
    said = " ".join(done.stdout.split())
    assert "not mended when its apply was left: harness.fp8.ops.multiply" in said
    line = OWN.split("\n").index('    raise ValueError("no such seam")') + 1
    assert f"own_faults.py:{line}" in said


def test_a_death_of_the_faults_own_or_from_outside_is_not_caught(tmp_path: Path) -> None:
    (tmp_path / "own_faults.py").write_text(DEADLY)
    names = ["EARLY", "OUTSIDE", "WITHIN"]
    own = ", ".join(f"own_faults:{name}" for name in names)
    (tmp_path / "own.yaml").write_text(f"schema_version: 1\nfaults: [{own}]\n")
    done = ran(tmp_path, "--matrix", "own.yaml", "-n", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert ends(tmp_path) == {
        "own_faults:EARLY": "raised",
        "own_faults:OUTSIDE": "other",
        "own_faults:WITHIN": "caught",
    }
    said = " ".join(done.stdout.split())
    assert "the process ended before its apply had yielded: the process left with exit code 9" in said
    assert "its process ended with SIGKILL and the fault says exit 9" in said


def test_one_fault_alone_is_caught(tmp_path: Path) -> None:
    done = ran(tmp_path, "--fault", "leaky_exit", "-n", "1", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(ends(tmp_path)) == {"leaky_exit"}


def test_faults_of_the_front_alone_need_no_cell(tmp_path: Path) -> None:
    done = ran(tmp_path, "--fault", "lost_cell", "--fault", "exit_zero", "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ends(tmp_path) == {"lost_cell": "caught", "exit_zero": "caught"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fault", "leaky_exti"], "--fault: unknown fault 'leaky_exti' (did you mean leaky_exit?)"),
        (["--fault", "no_such_module_x:FAULT"], "no module 'no_such_module_x' in the working directory or on Python's"),
        (["--fault", "bad:"], "--fault: unknown fault 'bad:' (an import path is package.module:FAULT)"),
        (["--fault", "bad"], "--fault: unknown fault 'bad' (unregistered: package.module:FAULT)"),
        (["--fault", "harness.registry:load"], "is no fault but function"),
        *((["--fault", name], f"--fault: unknown fault '{name}' (") for name in (":", "a:b:c", "../x:F")),
        (
            ["--fault", "leaky_exti", "--fault", "scale_douled"],
            "unknown fault 'scale_douled' (did you mean scale_doubled?)",
        ),
        (["--matrix", "ci.yaml"], "makes this a run matrix: runner.py --matrix FILE"),
        (["--matrix", "selftset.yaml"], "did you mean"),
        (["--plan", "--report-dir", ""], "--report-dir '': expected a directory"),
        (["--matrix", "."], "is a directory, not a matrix file"),
        (["--timeout", "soon"], "expected a number of seconds above 0"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["selftest", *words]) == 4
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_faults_that_this_machine_cannot_show_are_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "visible_gpus", lambda env: ())
    assert main(["selftest", "--fault", "dead_skip_tensor"]) == 5
    assert "needs a CUDA device" in capsys.readouterr().err


def test_no_skips_demands_every_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "visible_gpus", lambda env: ())
    monkeypatch.chdir(tmp_path)
    words = ["selftest", "--fault", "dead_skip_tensor", "--no-skips", "-n", "0", "--report-dir", "out"]
    assert main(words) == 1
    assert "exit code 1: 1 of 1 skipped, and --no-skips demands every one" in capsys.readouterr().out
    assert ends(tmp_path) == {"dead_skip_tensor": "skipped"}


def test_plan_shows_and_runs_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_run_and_tell", lambda *arguments: pytest.fail("was run"))
    assert main(["selftest", "--plan"]) == 0
    assert "leaky_exit: state.unchanged" in capsys.readouterr().out


def _missed(*words: str) -> list[str]:
    """The command that is told of a fault that was missed in a selftest with these options."""
    settings = parse(selftest.OPTIONS, words, {})
    outcome = Outcome("leaky_exit", "", "a cell", "state.unchanged", End.MISSED, "green")
    return list(selftest._again(outcome, settings))


@pytest.mark.parametrize(
    "words", [(), ("--matrix", "own.yaml", "--timeout", "7.5", "--allow-env", "TORCH_CACHING_PRECOMPILE")]
)
def test_the_command_that_runs_a_fault_again_works_from_where_the_selftest_was_started(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.yaml").write_text("schema_version: 1\nfaults: all\n")
    monkeypatch.chdir(tmp_path)
    command = [*_missed(*words), "--plan"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("leaky_exit: state.unchanged")
    for word in words:
        assert word in command
