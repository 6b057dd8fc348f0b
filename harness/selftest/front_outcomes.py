"""Faults of the harness's own front, each shown in a child process, and what became of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.faults.front import FrontFault
from harness.selftest.front import Shown, Stopped, is_clean, shown, twin_key
from harness.selftest.outcome import End, Outcome, end_of

CELL = "the front, on scripted cells"


@dataclass(frozen=True)
class _Silent:
    """A child that said nothing, and why."""

    end: End
    why: str


def front_outcomes(
    faults: Sequence[FrontFault],
    directory: Path,
    *,
    workers: int,
    timeout: float,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Run each fault's matrix with it, and each distinct matrix once without, ``workers`` at a time.

    Args:
        directory: where the children may write; a directory for each run.
        timeout: seconds for one child.
        stopped: True once the user has interrupted; children then end, and what has not ended is not run.
    """
    keys = {fault.name: twin_key(fault) for fault in faults}
    firsts = {key: next(fault for fault in faults if keys[fault.name] == key) for key in keys.values()}

    def said(fault: FrontFault, place: Path, broken: bool) -> Shown | _Silent:
        try:
            return shown(fault, place, broken=broken, timeout=timeout, stopped=stopped)
        except Stopped:
            return _Silent(End.NOT_RUN, "interrupted")
        except subprocess.TimeoutExpired:
            return _Silent(End.LOST, f"still running after {timeout:g} s")
        except OSError as error:
            return _Silent(End.LOST, str(error))

    with ThreadPoolExecutor(max(workers, 1)) as pool:
        twins = {
            key: pool.submit(said, fault, directory / f"clean-{fault.name}", False) for key, fault in firsts.items()
        }
        runs = [(fault, pool.submit(said, fault, directory / fault.name, True)) for fault in faults]
        return [_outcome(fault, run.result(), twins[keys[fault.name]].result()) for fault, run in runs]


def _outcome(fault: FrontFault, run: Shown | _Silent, twin: Shown | _Silent) -> Outcome:
    end, reason = _end(fault, run, twin)
    seconds = sum(one.seconds for one in (run, twin) if isinstance(one, Shown))
    checks = tuple(sorted(run.checks)) if isinstance(run, Shown) else ()
    return Outcome(
        fault.name, fault.breaks, CELL, fault.caught_by, end, reason, checks, round(seconds, 3), fault.report
    )


def _end(fault: FrontFault, run: Shown | _Silent, twin: Shown | _Silent) -> tuple[End, str]:
    if isinstance(run, _Silent):
        return run.end, run.why
    if isinstance(twin, _Silent):
        return twin.end, f"without the fault: {twin.why}"
    return end_of(
        fault.caught_by,
        twin="" if is_clean(fault, twin) else f"exit code {twin.exit_code}, {twin.reason}",
        named=run.reason if fault.caught_by in run.checks else "",
        is_red=run.exit_code != 0,
        told=f"exit code {run.exit_code}: {run.reason}",
    )
