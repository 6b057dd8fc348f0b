"""Faults of the harness's own front, each shown in a child process, and what became of them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.faults.front import FrontFault
from harness.selftest.front import Shown, is_caught, is_clean, shown, twin_key
from harness.selftest.outcome import End, Outcome

CELL = "the front, on scripted cells"


def front_outcomes(
    faults: Sequence[FrontFault],
    directory: Path,
    *,
    workers: int,
    timeout: float,
) -> list[Outcome]:
    """Run each fault's matrix with it, and each distinct matrix once without, ``workers`` at a time.

    Args:
        directory: where the children may write; a directory for each run.
        timeout: seconds for one child.
    """
    keys = {fault.name: twin_key(fault) for fault in faults}
    firsts = {key: next(fault for fault in faults if keys[fault.name] == key) for key in keys.values()}
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        twins = {
            key: pool.submit(_run, fault, directory / f"clean-{fault.name}", False, timeout)
            for key, fault in firsts.items()
        }
        runs = [(fault, pool.submit(_run, fault, directory / fault.name, True, timeout)) for fault in faults]
        return [_outcome(fault, run.result(), twins[keys[fault.name]].result()) for fault, run in runs]


def _run(fault: FrontFault, directory: Path, broken: bool, timeout: float) -> Shown | str:
    """What the child said; in words what kept it from saying anything."""
    try:
        return shown(fault, directory, broken=broken, timeout=timeout)
    except subprocess.TimeoutExpired:
        return f"still running after {timeout:g} s"
    except OSError as error:
        return str(error)


def _outcome(fault: FrontFault, run: Shown | str, twin: Shown | str) -> Outcome:
    end, reason = _end(fault, run, twin)
    seconds = sum(one.seconds for one in (run, twin) if isinstance(one, Shown))
    checks = tuple(sorted(run.checks)) if isinstance(run, Shown) else ()
    return Outcome(
        fault.name, fault.breaks, CELL, fault.caught_by, end, reason, checks, round(seconds, 3), fault.report
    )


def _end(fault: FrontFault, run: Shown | str, twin: Shown | str) -> tuple[End, str]:
    if isinstance(run, str) or isinstance(twin, str):
        return End.LOST, run if isinstance(run, str) else f"without the fault: {twin}"
    if not is_clean(fault, twin):
        return End.UNPROVED, f"without the fault: exit code {twin.exit_code}, {twin.reason}"
    if is_caught(fault, run):
        return End.CAUGHT, run.reason
    end = End.MISSED if run.exit_code == 0 else End.OTHER
    return end, f"{fault.caught_by} said nothing; exit code {run.exit_code}: {run.reason}"
