from __future__ import annotations

from pathlib import Path

import pytest

from harness.run.postmortem import EXIT_JOURNAL, cell_header, cell_log, ended_with, examine, signal_name
from harness.types import Verdict

CRASH = """Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/project/threads.py", line 7 in wait

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/env/lib/python3.11/site-packages/torch/_ops.py", line 1 in call
  File "/project/cases/mine.py", line 12 in forward
  File "/repo/harness/run/cell_process.py", line 94 in run
  File "/env/lib/python3.11/site-packages/_pytest/runner.py", line 184 in call

Extension modules: numpy._core (total: 1)
"""
TIMEOUT = """Timeout (0:00:02)!
Thread 0x00007f01 (most recent call first):
  File "/project/threads.py", line 7 in wait

Thread 0x00007f02 (most recent call first):
  File "/project/cases/mine.py", line 30 in loop
  File "/project/cases/mine.py", line 12 in forward
"""


def test_a_fatal_signal_is_a_crash_with_its_name_stack_and_site() -> None:
    death = examine(CRASH, "", -11, 120)
    assert (death.status, ended_with(-11), ended_with(0), ended_with(86)) == (-11, "SIGSEGV", "exit 0", "exit 86")
    assert (death.verdict, death.check, death.reason) == (Verdict.CRASH, "run.crash", "Segmentation fault")
    assert death.site == "/project/cases/mine.py:12"
    assert "string_at" in death.stack
    assert "_pytest" not in death.stack
    assert "Extension modules" not in death.stack


def test_a_timeout_names_its_limit_and_the_main_thread() -> None:
    death = examine(TIMEOUT, "", 1, 2.0)
    assert (death.verdict, death.check, death.reason) == (Verdict.TIMEOUT, "run.timeout", "still running after 2 s")
    assert death.site == "/project/cases/mine.py:30"


@pytest.mark.parametrize(
    ("status", "verdict", "words"),
    [
        (-9, Verdict.CRASH, "SIGKILL, which leaves no stack: killed from outside or by the out-of-memory killer"),
        (-15, Verdict.CRASH, "SIGTERM, and no stack was left"),
        (7, Verdict.CRASH, "exit code 7 in the middle of the cell"),
        (0, Verdict.CRASH, "exit code 0 in the middle of the cell"),
        (None, Verdict.CRASH, "vanished and left no stack"),
        (EXIT_JOURNAL, Verdict.INFRA, "could not write its result"),
    ],
)
def test_without_a_stack_the_status_speaks(status: int | None, verdict: Verdict, words: str) -> None:
    death = examine("", "", status, 120)
    assert (death.verdict, death.site) == (verdict, "")
    assert words in death.reason


def test_last_output_is_kept_and_bounded() -> None:
    death = examine("", "\n".join(f"line {n}" for n in range(1000)), -6, None)
    assert death.stack.splitlines()[0] == "last output of the process:"
    assert death.stack.splitlines()[-1] == "line 999"
    assert len(death.stack.splitlines()) < 50


def test_words_in_the_users_output_are_not_taken_for_a_stack() -> None:
    assert examine("", "Timeout (0:00:02)!\nFatal Python error: no", -9, 2).reason.startswith("SIGKILL")


def test_the_log_of_a_cell_is_what_came_after_its_header(tmp_path: Path) -> None:
    path = tmp_path / "gw0-1.log"
    path.write_text(cell_header("a") + "old\n" + cell_header("b") + "new\n")
    assert cell_log(path) == "new\n"
    assert cell_log(tmp_path / "none") == ""


def test_signal_names() -> None:
    assert (signal_name(11), signal_name(99)) == ("SIGSEGV", "signal 99")
