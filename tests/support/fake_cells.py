"""A pytest plugin that replaces the executor by harmless and harmful fakes, so that the runner is tested without torch.

Loaded by ``PYTEST_PLUGINS=tests.support.fake_cells``. ``FAKE_CELLS`` holds JSON: the seed of a cell -> what its
executor does. Cells that are not named pass.
"""

from __future__ import annotations

import ctypes
import dataclasses
import datetime
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.judge.waivers import apply_waivers
from harness.registry import LoadError
from harness.run import plugin
from harness.types import RETIRE_WORKER, Cell, CellResult, Evidence, Finding, Verdict, axes_dict


class OutOfMemoryError(RuntimeError):
    """Named like torch's, which is told by its name."""


def result(cell: Cell, verdict: Verdict = Verdict.PASS, **changes: Any) -> CellResult:
    finding = Finding("fake.check", "what was asked", verdict.value)
    return CellResult(
        **{
            "id": cell.id,
            "axes": axes_dict(cell.axes),
            "arch": "cpu",
            "provider": cell.axes.provider.label,
            "case": cell.axes.case,
            "verdict": verdict,
            "reason": str(finding) if verdict.is_red else "",
            "signature": "fake" if verdict.is_red else "",
            "evidence": Evidence.EMULATED,
            "findings": (finding,) if verdict.is_red else (),
            "checks": ("numerics.codes",),
            **changes,
        }
    )


def segv(cell: Cell) -> CellResult:
    print("about to read address zero", flush=True)
    os.write(2, b"terminate called after throwing an instance of 'c10::Error'\n")
    ctypes.string_at(0)
    raise AssertionError("unreachable")


def hang_in_c(cell: Cell) -> CellResult:
    # PyDLL keeps the GIL: no Python thread of this process runs while it sleeps.
    ctypes.PyDLL(None).sleep(60)
    raise AssertionError("unreachable")


def hang(cell: Cell) -> CellResult:
    time.sleep(60)
    raise AssertionError("unreachable")


def own_journal(cell: Cell) -> Path:
    """This process's journal file, found as a stranger would find it."""
    return next(Path(os.environ["FAKE_ROOT"]).glob(f"**/journal/*-{os.getpid()}.jsonl"))


def cut_short(cell: Cell) -> CellResult:
    with open(own_journal(cell), "a") as stream:
        stream.write('{"type": "end", "worker": "x", "pid": 1, "round": 1, "time": 0, "result": {"id": ')
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def append_end(cell: Cell, of: CellResult) -> None:
    """Write an end line beside the harness's own."""
    from harness.run.journal import JournalWriter, Process

    path = own_journal(cell)
    process = Process.of_file(path)
    JournalWriter(path.parent, process.worker, process.round).write("end", result=of, attempt=1)


def end_twice(cell: Cell) -> CellResult:
    append_end(cell, result(cell))
    return result(cell)


def end_twice_otherwise(cell: Cell) -> CellResult:
    append_end(cell, result(cell, Verdict.FAIL))
    return result(cell)


def unplanned(cell: Cell) -> CellResult:
    append_end(cell, result(cell, id="toy_linear[nobody=planned]"))
    return result(cell)


def die_after_recording(cell: Cell) -> CellResult:
    append_end(cell, result(cell))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def once(cell: Cell, first: Callable[[], CellResult]) -> CellResult:
    """Do ``first`` the first time this cell runs, pass afterwards."""
    mark = Path(os.environ["FAKE_ROOT"]) / f"once-{cell.axes.seed}"
    if mark.exists():
        return result(cell)
    mark.touch()
    return first()


def raises(error: BaseException) -> CellResult:
    raise error


def kill_pytest(cell: Cell) -> CellResult:
    """What an operator, or the out-of-memory killer, does to the process that commands the workers."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.3)
    return result(cell)


def enter_and_leave_debugger(cell: Cell) -> CellResult:
    breakpoint()
    return result(cell)


def waived(cell: Cell, of: CellResult) -> CellResult:
    """What the matrix's waivers make of a result."""
    done = apply_waivers(of.verdict, cell.expect.waivers, of.arch, {}, datetime.date.today())
    return dataclasses.replace(of, verdict=done.verdict, gates=done.gates)


BEHAVIOURS: Mapping[str, Callable[[Cell], CellResult]] = {
    "fail": lambda cell: result(cell, Verdict.FAIL),
    "xfail": lambda cell: waived(cell, result(cell, Verdict.FAIL)),
    "skip": lambda cell: result(cell, Verdict.SKIP, reason="no such kernel here"),
    "quarantined": lambda cell: waived(cell, result(cell, Verdict.FAIL)),
    "segv": segv,
    "hang": hang,
    "hang_in_c": hang_in_c,
    "sigkill": lambda cell: raises(AssertionError(os.kill(os.getpid(), signal.SIGKILL))),
    "exit": lambda cell: os._exit(7),
    "sys_exit": lambda cell: sys.exit(0),
    "memory_error": lambda cell: raises(MemoryError("no room")),
    "cuda_oom": lambda cell: raises(OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")),
    "oom_once": lambda cell: once(cell, lambda: raises(MemoryError("no room beside others"))),
    "infra": lambda cell: result(cell, Verdict.INFRA),
    "infra_once": lambda cell: once(cell, lambda: result(cell, Verdict.INFRA)),
    "bug": lambda cell: raises(KeyError("a bug of the harness")),
    "load_error": lambda cell: raises(LoadError("cases/mine.py:3: importing cases.mine raised NameError: x")),
    "poison": lambda cell: raises(RuntimeError("CUDA error: device-side assert triggered")),
    "retire": lambda cell: result(cell, Verdict.FAIL, notes=(RETIRE_WORKER,)),
    "cut_short": cut_short,
    "end_twice": end_twice,
    "end_twice_otherwise": end_twice_otherwise,
    "unplanned": unplanned,
    "die_after_recording": die_after_recording,
    "kill_pytest": lambda cell: once(cell, lambda: kill_pytest(cell)),
    "slow": lambda cell: (time.sleep(1.0), result(cell))[1],
    "debugger": enter_and_leave_debugger,
}


def execute_cell(cell: Cell, *, timeout: float | None) -> CellResult:
    faults = json.loads(os.environ.get("FAKE_CELLS", "{}"))
    behaviour = faults.get(str(cell.axes.seed))
    if "FAKE_EDIT" in os.environ:
        (Path(os.environ["FAKE_ROOT"]) / "m.yaml").write_text("edited: true")
    if behaviour is None and "FAKE_SAYS_GPU" in os.environ:
        return result(cell, notes=(f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')}",))
    return BEHAVIOURS[behaviour](cell) if behaviour else result(cell)


def describe_host() -> Mapping[str, Any]:
    return {"arch": "cpu", "versions": {"python": "3", "torch": "2.99.0"}, "cpu_count": 2}


def load_cases(names: Any) -> None:
    if "FAKE_BROKEN_CASE" in os.environ:
        raise LoadError("cases/mine.py:3: importing cases.mine raised NameError: name 'x' is not defined")


def pytest_configure() -> None:
    plugin.execute_cell = execute_cell
    plugin.describe_host = describe_host
    plugin.load_cases = load_cases
    plugin.peak_gpu_mib = lambda: 0
