"""Ctrl-C, SIGTERM and SIGKILL at the front: what was done is kept and reported, and nothing is left running."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.running import RUNNER, Ran, environment, front_command, run, write_matrix

SLOW = {3: "hang", 4: "hang"}


def started(directory: Path, *options: str) -> subprocess.Popen[str]:
    """A front whose cells 3 and 4 hang, once all the others have ended."""
    write_matrix(directory, 6)
    process = subprocess.Popen(
        front_command("-v", *options),
        cwd=directory,
        env=environment(directory, SLOW, {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wanted = 4 if "0" in options else 5
    wait_until(lambda: len(_lines(directory, '"type": "start"')) >= wanted, f"{wanted} cells were started")
    return process


def _lines(directory: Path, text: str) -> list[str]:
    files = directory.glob("reports/.*.partial/process/journal/*.jsonl")
    return [line for file in files for line in file.read_text().splitlines() if text in line]


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited too long until {what}"
        time.sleep(0.05)


def wait_until_gone(directory: Path) -> None:
    wait_until(lambda: processes_of(directory) == [], f"{processes_of(directory)} were gone")


def processes_of(directory: Path) -> list[int]:
    """Processes whose environment names this test's directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"FAKE_ROOT={directory}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("options", [("-n", "0"), ("-n", "2")], ids=["no worker", "two workers"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_is_reported_and_ends_its_children(
    tmp_path: Path, options: tuple[str, ...], number: signal.Signals
) -> None:
    process = started(tmp_path, *options)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    ran = Ran(process.returncode, output, tmp_path)
    assert ran.code == 2, output
    assert ran.run["exit_code"] == 2
    done = 3 if options == ("-n", "0") else 4
    assert list(ran.verdicts.values()).count("pass") >= done - 1
    assert ran.results[3].verdict.value == "error"
    assert ran.results[3].reason == "interrupted"
    assert len(ran.results) == 6
    wait_until_gone(tmp_path)


def test_killed_run_leaves_what_was_done_and_report_recovers_it(tmp_path: Path) -> None:
    process = started(tmp_path, "-n", "2")
    partial = next(tmp_path.glob("reports/.*.partial"))
    busy = run(tmp_path, [sys.executable, str(RUNNER), "report", str(partial)])
    assert (busy.code, "still in progress" in busy.output) == (4, True)
    process.kill()
    process.communicate()
    wait_until_gone(tmp_path)
    assert not (tmp_path / "reports" / "latest").exists()
    ran = run(tmp_path, [sys.executable, str(RUNNER), "report", str(partial)])
    assert ran.code == 2, ran.output
    final = partial.with_name(partial.name[1 : -len(".partial")])
    os.symlink(final.name, tmp_path / "reports" / "latest")
    assert (ran.results[0].verdict.value, ran.results[3].reason) == ("pass", "interrupted")
    assert len(ran.results) == 6


# The first terminal that the leader of a new session opens becomes its own, with its Ctrl-C.
TAKE_TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)
for number in range(3):
    os.dup2(terminal, number)
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_debugger_has_the_terminal_the_clock_stops_and_ctrl_c_is_its_own(tmp_path: Path) -> None:
    write_matrix(tmp_path, 3)
    terminal, other_end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, os.ttyname(other_end), *front_command("-n", "0", "--timeout", "1")],
        cwd=tmp_path,
        env=environment(tmp_path, {1: "debugger"}, {"TERM": "dumb"}),
        start_new_session=True,
    )
    seen = _read_until(terminal, b"(Pdb)")
    os.write(terminal, b"p 6 * 7\n")
    seen += _read_until(terminal, b"42\r\n(Pdb)")
    time.sleep(1.5)  # longer than the time-out
    os.write(terminal, b"\x03")
    seen += _read_until(terminal, b"KeyboardInterrupt--\r\n(Pdb)")
    os.write(terminal, b"c\n")
    seen += _read_until(terminal, b"exit code")
    assert process.wait(timeout=20) == 0, seen.decode()
    os.close(other_end)  # not earlier: a terminal that nobody holds open reads as broken
    os.close(terminal)
    assert set(Ran(0, "", tmp_path).verdicts.values()) == {"pass"}


def _read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + 20
    while text not in seen:
        assert time.monotonic() < deadline, seen.decode()
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536)
    return seen
