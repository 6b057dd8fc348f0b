"""Why a process died, from what it left: its stack file, its log and the exit status that its parent saw."""

from __future__ import annotations

import dataclasses
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from harness.types import Verdict

LOG_LINES = 40
# The exit status of a process that could not write its journal (sysexits.h: EX_IOERR).
EXIT_JOURNAL = 74
CELL_MARK = "\n=== cell "  # what stands in a log before the output of a cell

_FRAME = re.compile(r'^\s+File "(?P<file>[^"\n]+)", line (?P<line>\d+) in ')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x\w+")
_FATAL = re.compile(r"^Fatal Python error: (?P<what>.+)$", re.MULTILINE)
_TIMEOUT = re.compile(r"^Timeout \(.*\)!$", re.MULTILINE)
_NOISE = re.compile(r"^Extension modules: .*$\n?", re.MULTILINE)
# Frames of these are never where the user has to look first.
_NOT_THE_USERS = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|(?:^|/)harness/|^<")


@dataclass(frozen=True)
class Death:
    """The end of a process in the middle of a cell. ``site`` is the innermost frame of the user's code."""

    verdict: Verdict
    check: str  # run.crash, run.timeout...
    reason: str
    stack: str = ""
    site: str = ""
    status: int | None = None  # of the process, negative for a signal; None where nobody saw it


def examine(stack: str, log: str, status: int | None, timeout: float | None) -> Death:
    """Decide between ``timeout``, ``crash`` and ``infra``.

    Args:
        stack: what faulthandler wrote during the cell.
        log: what the process printed during the cell (a C++ runtime says there why it aborts).
        status: exit status as the parent saw it, negative for a signal; None when nobody saw it.
        timeout: the limit in seconds that the cell ran under.
    """
    return dataclasses.replace(_cause(stack, log, status, timeout), status=status)


def _cause(stack: str, log: str, status: int | None, timeout: float | None) -> Death:
    text = _detail(stack, log)
    if _TIMEOUT.search(stack):
        limit = f"{timeout:g} s" if timeout else "the limit"
        return Death(Verdict.TIMEOUT, "run.timeout", f"still running after {limit}", text, _site(stack))
    fatal = _FATAL.search(stack)
    if fatal:
        return Death(Verdict.CRASH, "run.crash", fatal["what"].strip(), text, _site(stack))
    if status == EXIT_JOURNAL:
        reason = "the process could not write its result (disk full?)"
        return Death(Verdict.INFRA, "run.infra", reason, text)
    return Death(Verdict.CRASH, "run.crash", _without_stack(status), text)


def _without_stack(status: int | None) -> str:
    if status is None:
        return "the process vanished and left no stack: killed from outside or by the out-of-memory killer, or os._exit"
    if status >= 0:
        return f"the process left with exit code {status} in the middle of the cell, without an exception: no stack"
    name = signal_name(-status)
    if name == "SIGKILL":
        return "SIGKILL, which leaves no stack: killed from outside or by the out-of-memory killer"
    return f"{name}, and no stack was left: killed from outside"


def ended_with(status: int) -> str:
    """``SIGSEGV``, or ``exit 7``: how a process ended, as the faults of a selftest state it (``Fault.dies``)."""
    return f"exit {status}" if status >= 0 else signal_name(-status)


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 99`` for what has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _detail(stack: str, log: str) -> str:
    parts = [_without_plumbing(_NOISE.sub("", stack)).strip()]
    lines = log.strip().splitlines()
    if lines:
        parts.append("\n".join(["last output of the process:", *lines[-LOG_LINES:]]))
    return "\n\n".join(part for part in parts if part)


def _without_plumbing(stack: str) -> str:
    """The stack without the frames of pytest and xdist that lead to every cell."""
    kept: list[str] = []
    below = False
    for line in stack.splitlines():
        frame = _FRAME.match(line)
        below = below and frame is not None
        if frame and not below and frame["file"].endswith("harness/run/cell_process.py"):
            below = True
            kept.append("  ... (harness and pytest)")
        if not below:
            kept.append(line)
    return "\n".join(kept)


def _site(stack: str) -> str:
    """``file:line`` of the user's innermost frame; frames stand innermost first."""
    for line in _guilty_thread(stack):
        frame = _FRAME.match(line)
        if frame and not _NOT_THE_USERS.search(frame["file"]):
            return f"{frame['file']}:{frame['line']}"
    return ""


def _guilty_thread(stack: str) -> list[str]:
    """Lines of the thread that crashed, which faulthandler calls current; in a time-out the main one, listed last."""
    threads: list[list[str]] = []
    for line in stack.splitlines():
        if _THREAD.match(line):
            threads.append([])
        if threads:
            threads[-1].append(line)
    current = next((lines for lines in threads if lines[0].startswith("Current thread")), None)
    return current or (threads[-1] if threads else [])


def cell_log(path: Path) -> str:
    """What a process printed since its last cell began; empty without a log."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(CELL_MARK)[2].partition("\n")[2]


def cell_header(cell_id: str) -> str:
    """What stands in a process's log before the output of a cell."""
    return f"{CELL_MARK}{cell_id}\n"
