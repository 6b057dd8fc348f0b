from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from harness.run import rounds, run_dir
from harness.run.plan_file import Round, write_plan
from harness.run.rounds import Interrupts, RoundEnd, command, environment, run_round
from harness.run.run_dir import RunDir
from tests.support.cells import plan


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text("schema_version: 1\n")
    made = run_dir.create("r1", None)
    write_plan(made.plan, plan(1))
    return made


def test_the_command_reads_nothing_of_the_users_pytest_configuration(run: RunDir) -> None:
    words = command(run, Round(2, ("a",)), workers=2, maxfail=0)
    assert str(run.process / "matrix.yaml") in words
    for pair in (("-p", "no:cacheprovider"), ("-n", "2"), ("--dist", "load")):
        assert any(words[index : index + 2] == list(pair) for index in range(len(words))), pair
    assert {"--noconftest", "-c"} <= set(words)
    assert "--maxfail" not in words


def test_no_worker_needs_no_xdist(run: RunDir) -> None:
    words = command(run, Round(1, ("a",)), workers=0, maxfail=3)
    assert not {"xdist", "-n", "--dist"} & set(words)
    assert words[words.index("--maxfail") + 1] == "3"


def test_the_environment_keeps_the_users_variables_but_not_pytests() -> None:
    mine = {"TORCH_LOGS": "x", "OMP_NUM_THREADS": "8", "PYTEST_ADDOPTS": "-k nothing", "PYTHONPATH": "/mine"}
    made = environment(mine)
    assert (made["TORCH_LOGS"], made["OMP_NUM_THREADS"]) == ("x", "8")
    assert "PYTEST_ADDOPTS" not in made
    assert made["PYTHONPATH"].split(os.pathsep) == [str(Path(__file__).parents[1]), "/mine"]
    assert environment({})["OMP_NUM_THREADS"] == "1"


def test_a_round_that_records_nothing_for_too_long_is_killed(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "command", lambda *_, **__: ["sleep", "60"])
    monkeypatch.setattr(rounds, "PREPARE_SECONDS", 0.0)
    monkeypatch.setattr(rounds, "STALL_GRACE", 0.0)
    made = plan(1, timeout=0.2)
    end = run_round(run, made, Round(1, ("a",)), workers=1, watch=lambda _: None, interrupts=Interrupts())
    assert (end.stalled, end.status, end.stopped) == (True, -signal.SIGKILL, False)
    assert "nothing for too long" in str(end)


def test_a_process_that_a_cell_left_behind_is_ended(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = run.work / "pid"
    monkeypatch.setattr(rounds, "command", lambda *_, **__: ["sh", "-c", f"sleep 60 & echo $! > {pid_file}"])
    end = run_round(run, plan(1), Round(1, ("a",)), workers=1, watch=lambda _: None, interrupts=Interrupts())
    assert end.status == 0
    left = Path(f"/proc/{pid_file.read_text().strip()}/cmdline")
    assert not left.exists() or left.read_bytes() == b""


def test_the_first_signal_is_a_flag_and_the_second_does_what_it_always_did() -> None:
    # A shell without job control starts background commands with SIGINT ignored: say what it "always did".
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupts.seen
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_the_debuggers_while_it_has_the_terminal() -> None:
    with Interrupts(paused=True) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert not interrupts.seen
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.seen


def test_signals_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_words_for_an_end() -> None:
    entry = Round(2, ("a",))
    assert str(RoundEnd(entry, 1, -11)) == "pytest was killed by signal 11 in round 2"
    assert str(RoundEnd(entry, 1, 3)) == "pytest ended with exit code 3 in round 2"
