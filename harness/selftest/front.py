"""One run of the real front with a fault of the front in it, or without: in a child process, on scripted cells.

``python -m harness.selftest.front NAME --broken`` (or ``--clean``) runs a fault's matrix in the working directory and
leaves its report in ``report/``. Only this module ever applies such a fault.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from harness.faults import FRONT_FAULTS
from harness.faults.front import FrontFault
from harness.registry import load

MATRIX, REPORT = "front.yaml", "report"
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Shown:
    """What one run said.

    ``exit_code``: of the process; ``checks``: names of every finding in its report, of cells and of the audit;
    ``reason``: the finding that the fault names, else the exit code in words; ``seconds``: wall time of the process.
    """

    exit_code: int
    checks: frozenset[str]
    reason: str
    seconds: float


class Stopped(Exception):
    """The user interrupted before the run had ended."""


def shown(
    fault: FrontFault,
    directory: Path,
    *,
    broken: bool,
    timeout: float,
    stopped: Callable[[], bool] = lambda: False,
) -> Shown:
    """Run ``fault``'s matrix in ``directory`` (made if missing), with the fault or without.

    Args:
        stopped: asked while it runs; the child is ended once it says True.

    Raises:
        Stopped: it said so.
        OSError: the directory can't be written.
        subprocess.TimeoutExpired: it took longer than ``timeout`` seconds.
    """
    directory.mkdir(parents=True, exist_ok=True)
    root = str(Path(harness.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FP8_HARNESS_")}
    words = [sys.executable, "-m", "harness.selftest.front", fault.name, "--broken" if broken else "--clean"]
    if stopped():
        raise Stopped
    started = time.monotonic()
    child = subprocess.Popen(
        words,
        cwd=directory,
        env={**kept, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches only the process that was started by the user
    )
    with _ended(child):
        told = _told(child, started + timeout, stopped)
    seconds = time.monotonic() - started
    said, reason = said_in(directory / REPORT, fault.caught_by)
    return Shown(child.returncode, said, reason or _last_line(told), round(seconds, 3))


def _told(child: subprocess.Popen[str], deadline: float, stopped: Callable[[], bool]) -> str:
    """The stderr of ``child`` once it has ended."""
    while True:
        try:
            return child.communicate(timeout=POLL_SECONDS)[1]
        except subprocess.TimeoutExpired:
            if stopped():
                raise Stopped from None
            if time.monotonic() > deadline:
                raise


@contextlib.contextmanager
def _ended(child: subprocess.Popen[str]) -> Iterator[None]:
    """``child`` with all that it started is gone afterwards."""
    try:
        yield
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def twin_key(fault: FrontFault) -> str:
    """Equal for faults whose honest runs are one and the same, so that it need be run only once."""
    return json.dumps(fault.matrix)


def is_caught(fault: FrontFault, run: Shown) -> bool:
    """True when the broken run is red and says so by the finding that the fault names."""
    return run.exit_code != 0 and fault.caught_by in run.checks


def is_clean(fault: FrontFault, run: Shown) -> bool:
    """True when the honest run ends as it must, and neither that finding nor any of the audit is there."""
    audited = {name for name in run.checks if name.startswith("audit.")}
    return run.exit_code == fault.honest and not audited and fault.caught_by not in run.checks


def said_in(directory: Path, wanted: str) -> tuple[frozenset[str], str]:
    """Names of all findings of a report, however damaged, and one of the wanted ones (else the exit code) in words."""
    run: dict[str, Any] = {}
    findings: list[tuple[str, str]] = []
    with contextlib.suppress(OSError, ValueError):
        run = json.loads((directory / "run.json").read_text(encoding="utf-8"))
        audit = (run.get("audit") or {}).get("findings", ())
        findings += ((one["check"], f"{one['check']}: {one['text']}") for one in audit)
    with contextlib.suppress(OSError):
        for line in (directory / "results.jsonl").read_text(encoding="utf-8").split("\n"):
            findings += _of_line(line)
    reason = next((text for check, text in findings if check == wanted), run.get("exit_reason", ""))
    return frozenset(check for check, _ in findings), reason


def _of_line(line: str) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(ValueError, KeyError):
        for one in json.loads(line)["findings"]:
            yield one["check"], f"{one['check']}: expected {one['expected']}, got {one['got']}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def main(arguments: Sequence[str]) -> int:
    """The child: the front on scripted cells; returns its exit code."""
    if len(arguments) != 2 or arguments[0] not in FRONT_FAULTS or arguments[1] not in ("--broken", "--clean"):
        print("usage: python -m harness.selftest.front NAME --broken|--clean", file=sys.stderr)
        return 4
    from harness.cli.main import main as front
    from harness.faults.patching import patched
    from harness.run import supervise
    from harness.selftest import scripted

    fault: FrontFault = load(FRONT_FAULTS[arguments[0]])
    Path(MATRIX).write_text(json.dumps(fault.matrix), encoding="utf-8")
    with patched(supervise, "run_round", scripted.run_round), contextlib.ExitStack() as stack:
        if arguments[1] == "--broken":
            stack.enter_context(fault.apply())
        return front(["--matrix", MATRIX, "-n", "0", "--report-dir", REPORT, "--quiet", "--color", "never"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
