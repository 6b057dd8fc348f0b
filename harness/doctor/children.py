"""Child processes that are asked a question each, all at once: answered, or dead with a reason, within a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from harness.doctor.questions import Request, dump
from harness.run.postmortem import signal_name

COMMAND = (sys.executable, "-m", "harness.doctor.probe")
# What a child gets that can't even end itself after its time limit, with a traceback of where it hangs.
GRACE = 2.0
LATE = "did not answer"
OUTPUT_LINES = 8
_BEFORE_A_DUMP = 2
_TIMEOUT_MARK = "Timeout ("
_FAULT_MARKS = ("Fatal Python error", _TIMEOUT_MARK)  # how faulthandler begins
_OUTPUT_BYTES = 16 * 1024
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Reply:
    """``text``: the answer, empty for a child that gave none. ``ending``: how it ended then. ``output``: last lines."""

    text: str = ""
    ending: str = ""
    output: tuple[str, ...] = ()

    @property
    def telling(self) -> str:
        """The line that says most: the innermost frame of faulthandler's dump, else the last one; empty without any."""
        dumped = any(line.startswith(_FAULT_MARKS) for line in self.output)
        frames = [line for line in self.output if line.lstrip().startswith("File ")]
        return frames[0].strip() if dumped and frames else "".join(self.output[-1:])


class Child:
    """One process with its request, started at once; a context manager that leaves none behind.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, request: Request, env: Mapping[str, str], directory: Path, command: Sequence[str]) -> None:
        self._answer = directory / "answer.json"
        self._log = directory / "output"
        self._seconds = request.seconds
        self._ended = False
        self._deadline = time.monotonic() + request.seconds + GRACE
        question = directory / "request.json"
        question.write_text(dump(request), encoding="utf-8")
        with open(question, "rb") as given, open(self._log, "wb") as output:
            self._process = subprocess.Popen(
                [*command, str(self._answer)],
                env=dict(env),
                stdin=given,
                stdout=output,
                stderr=output,
                # A group of its own: whatever a library starts ends with the child, and Ctrl-C is the front's.
                start_new_session=True,
            )

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def reply(self) -> Reply:
        """Wait for the answer, at most until the time limit."""
        while self._process.poll() is None and time.monotonic() < self._deadline:
            time.sleep(_POLL_SECONDS)
        status = self._process.poll()
        self._end()
        if self._answer.exists():
            return Reply(self._answer.read_text(encoding="utf-8"))
        output = last_lines(self._log)
        return Reply("", self._ending(status, output), output)

    def _ending(self, status: int | None, output: Sequence[str]) -> str:
        if status is None or any(line.startswith(_TIMEOUT_MARK) for line in output):
            return f"{LATE} within {self._seconds:g} s and was killed"
        if status < 0:
            return f"was killed by {signal_name(-status)}"
        return f"ended with exit code {status} and no answer"

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def ask(requests: Sequence[Request], env: Mapping[str, str], command: Sequence[str] = COMMAND) -> list[Reply]:
    """A reply for each request, in order. The children run side by side: each spends its time on importing."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="doctor-")))
        children: list[Child | Reply] = []
        for number, request in enumerate(requests):
            directory = home / str(number)
            directory.mkdir()
            try:
                children.append(stack.enter_context(Child(request, env, directory, command)))
            except OSError as error:
                children.append(Reply("", f"could not be started: {error.strerror or error}"))
        return [child if isinstance(child, Reply) else child.reply() for child in children]


def last_lines(path: Path) -> tuple[str, ...]:
    """What a process said last, without blank lines and the importer's frames; nothing where it can't be read.

    A Python traceback has its error at the end. faulthandler's begins with what happened and has the innermost frame
    next: of that one the beginning is kept, with what was printed before it.
    """
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, path.stat().st_size - _OUTPUT_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ()
    lines = [line.rstrip() for line in text.splitlines() if line.strip(" ^~") and "<frozen importlib" not in line]
    dumps = [index for index, line in enumerate(lines) if line.startswith(_FAULT_MARKS)]
    start = max(0, dumps[0] - _BEFORE_A_DUMP if dumps else len(lines) - OUTPUT_LINES)
    return tuple(lines[start : start + OUTPUT_LINES])
