from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.baseline import Environment
from harness.run import here
from harness.run.here import UnknownMachine, environment_of, this_machine
from harness.run.host import describe


def test_it_is_what_a_worker_says_of_this_machine() -> None:
    assert this_machine() == environment_of(describe())


def test_only_what_can_move_a_count_is_kept() -> None:
    host = {
        "arch": "sm90",
        "gpus": [{"name": "NVIDIA H200", "memory_mib": 1}, {"name": "other"}],
        "versions": {"python": "3.11", "torch": "2.11.0", "cuda": "13.0", "pytest": "9"},
    }
    assert environment_of(host) == Environment("sm90", "NVIDIA H200", {"torch": "2.11.0", "cuda": "13.0"})
    assert environment_of({"arch": "cpu", "gpus": []}) == Environment("cpu")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ("raise ImportError('libcuda.so.1: no such file')", "ImportError: libcuda.so.1: no such file"),
        ("import os; os._exit(7)", "exit code 7"),
        ("print('hello')", "exit code 0"),
        ("import time; time.sleep(60)", "timed out"),
    ],
)
def test_a_machine_that_can_not_say(ask: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "_ASK", ask)
    monkeypatch.setattr(here, "SECONDS", 1.0)
    with pytest.raises(UnknownMachine, match=message):
        this_machine()


def test_it_is_asked_with_the_environment_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def fake(command: list[str], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.update(env)
        return subprocess.CompletedProcess(command, 0, 'noise\nthis machine: {"arch": "cpu"}\nnoise\n', "")

    monkeypatch.setattr(subprocess, "run", fake)
    assert this_machine({"CUDA_VISIBLE_DEVICES": "3", "PATH": os.defpath}) == Environment("cpu")
    assert seen["CUDA_VISIBLE_DEVICES"] == "3"
    assert seen["PYTHONPATH"] in sys.path or seen["PYTHONPATH"]
