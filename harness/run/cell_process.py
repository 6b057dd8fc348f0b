"""This process as a runner of cells: it records, guards and redirects; what a cell does is none of its business."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol

from harness.ctrl_c import CtrlC
from harness.faults import stages
from harness.judge.outcome import poisons_worker, verdict_of_error
from harness.observe.types import ErrorSeen
from harness.providers.load import split_faults
from harness.registry import LoadError
from harness.run.journal import JournalWriter, Process
from harness.run.leases import Lease
from harness.run.plan_file import Round, RunPlan
from harness.run.postmortem import EXIT_JOURNAL, cell_header
from harness.run.run_dir import RunDir
from harness.run.watchdog import Watchdog
from harness.run.worker_gpu import check_visible, in_use_mib
from harness.signature import signature_of
from harness.types import RETIRE_WORKER, Cell, CellResult, Evidence, Finding, Verdict, axes_dict

# Importing torch and asking CUDA what it has: seconds on a quiet machine, minutes on a cold network disk.
PREPARE_SECONDS = 300.0
IN_PROCESS = "main"  # the worker's name where pytest itself runs the cells


class Execute(Protocol):
    """Runs one cell. It returns a result for whatever the product does."""

    def __call__(self, cell: Cell, *, timeout: float | None) -> CellResult: ...


class Unusable(Exception):
    """The user's input can't be run at all (a case file that raises at import); the message is for the user."""


class CellProcess:
    """Runs cells one after the other and writes down each start and each end before it goes on."""

    def __init__(
        self,
        run: RunDir,
        plan: RunPlan,
        entry: Round,
        worker: str,
        *,
        execute: Execute,
        peak_gpu_mib: Callable[[], int] = lambda: 0,
        lease: Lease | None = None,
    ) -> None:
        """``lease``: this process's GPU; None on a machine without one.

        Raises:
            OSError: the run's directory can't be written.
        """
        self._plan = plan
        self._entry = entry
        self._execute = execute
        self._peak_gpu_mib = peak_gpu_mib
        self._lease = lease
        self._journal = JournalWriter(run.journal, worker, entry.number)
        process = Process(entry.number, worker, os.getpid())
        self._watchdog = Watchdog(run.stack_file(process))
        # A debugger needs the terminal, so only workers send their output to a file.
        self._log = run.log_file(process) if worker != IN_PROCESS else None
        self._retired = False
        self._settled = False

    @property
    def retired(self) -> bool:
        """True when no further cell may run in this process."""
        return self._retired

    def prepare(self, describe: Callable[[], Mapping[str, Any]], preload: Callable[[], None]) -> None:
        """Import what every cell needs and record what this machine is, outside any cell's time.

        Raises:
            Unusable: a module that the plan names can't be imported; recorded for whoever started this process.
            GpuError: torch sees more than the leased GPU.
        """
        self._watchdog.arm(PREPARE_SECONDS)
        self._write_lease()
        with _output_to(self._log):
            try:
                preload()
                host = describe()
                if self._lease is not None:
                    check_visible(self._lease, len(host.get("gpus", ())))
                self._write("host", host=host, run=self._plan.run_id)
            except (LoadError, ImportError) as error:
                self._unusable(error)
            finally:
                self._watchdog.disarm()

    def _write_lease(self) -> None:
        """What was in use on a GPU is asked only where it matters: a cell that must be alone there."""
        lease = self._lease
        if lease is not None:
            used = in_use_mib(lease.gpu) if lease.is_alone else None
            self._write("lease", gpu=lease.gpu, alone=lease.is_alone, in_use_mib=used)

    def run(self, cell: Cell) -> CellResult:
        """One cell, recorded.

        Raises:
            Unusable: what the cell names can't be imported.
        """
        self._watchdog.arm(self._plan.timeout)
        try:
            with _output_to(self._log, cell_header(cell.id)):
                self._write("start", id=cell.id, attempt=self._entry.attempt)
                with self._stages_of(cell):
                    result = self._result_of(cell)
                peaks = {"rss_mib": peak_rss_mib(), "gpu_mib": self._peak_gpu_mib()}
                self._write("end", result=result, attempt=self._entry.attempt, **peaks)
        finally:
            self._watchdog.disarm()
        self._settle()
        self._retired = self._plan.isolate or RETIRE_WORKER in result.notes
        return result

    def _stages_of(self, cell: Cell) -> contextlib.AbstractContextManager[None]:
        """Of a cell with a fault it is recorded how far the fault has come: a dead process can't be asked."""
        if not split_faults(cell.axes.provider.name)[1]:
            return contextlib.nullcontext()
        attempt = self._entry.attempt
        return stages.told_to(lambda stage: self._write("fault", id=cell.id, attempt=attempt, stage=stage))

    def _settle(self) -> None:
        """After the first cell everything that torch imports lazily is there: keep the collector from walking through
        it for ever after, which costs a tenth of a second now and then."""
        if not self._settled:
            self._settled = True
            gc.collect()
            gc.freeze()

    def _result_of(self, cell: Cell) -> CellResult:
        """The result of the cell, whatever the program under test raises."""
        with CtrlC() as ctrl_c:
            try:
                return self._execute(cell, timeout=self._plan.timeout)
            except LoadError as error:
                self._unusable(error)
            except Exception as error:
                return _from_exception(cell, error)
            except KeyboardInterrupt as error:
                if ctrl_c.came:
                    raise
                return _from_program(cell, error, "KeyboardInterrupt, raised by the program itself: no Ctrl-C came")
            except BaseException as error:  # a program under test may call sys.exit
                return _from_program(cell, error, f"{type(error).__name__}: {error}")

    def pause(self) -> None:
        """A debugger was entered: stop the clock, and tell whoever watches."""
        self._watchdog.disarm()
        self._write("paused")

    def stopped(self) -> None:
        """The user interrupted pytest."""
        self._watchdog.disarm()
        self._write("stopped")

    def close(self) -> None:
        self._watchdog.close()
        self._journal.close()

    def _unusable(self, error: Exception) -> NoReturn:
        message = str(error) if isinstance(error, LoadError) else f"{type(error).__name__}: {error}"
        self._write("usage", message=message)
        raise Unusable(message) from error

    def _write(self, record_type: str, **data: Any) -> None:
        try:
            self._journal.write(record_type, **data)
        except OSError as error:
            # A result that can't be recorded must not be followed by one that can: leave, so that the cell is missed.
            sys.stderr.write(f"cannot write {self._journal.path}: {error}\n")
            os._exit(EXIT_JOURNAL)


def peak_rss_mib() -> int:
    """The most memory this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> (20 if sys.platform == "darwin" else 10)  # bytes there, KiB elsewhere


def _from_exception(cell: Cell, error: Exception) -> CellResult:
    """The last resort: an exception that the executor should have turned into a result."""
    chain = tuple((_names(link), str(link)) for link in _chain(error))
    seen = ErrorSeen("run", type(error).__name__, str(error), chain)
    verdict = verdict_of_error(seen) or Verdict.ERROR
    finding = Finding("harness.error", "a result", f"{type(error).__name__}: {error}")
    result = _without_end(cell, verdict, finding, error)
    return dataclasses.replace(result, notes=(RETIRE_WORKER,)) if poisons_worker(seen) else result


def _from_program(cell: Cell, error: BaseException, got: str) -> CellResult:
    """What is no ``Exception`` passes every part of the harness: the program under test raised it."""
    from harness.observe.errors import describe_error  # these import torch, which this process has by now
    from harness.observe.sites import own_code
    from harness.targets import code_of

    with own_code(code_of(cell.axes.target)):
        site = describe_error(error, "run").site
    result = _without_end(cell, Verdict.ERROR, Finding("error.unexpected", "no exception", got, site=site), error)
    # A seeded fault was left in a hurry: what it did to this process must not reach another cell.
    _, faults = split_faults(cell.axes.provider.name)
    return dataclasses.replace(result, notes=(RETIRE_WORKER,)) if faults else result


def _without_end(cell: Cell, verdict: Verdict, finding: Finding, error: BaseException) -> CellResult:
    return CellResult(
        id=cell.id,
        axes=axes_dict(cell.axes),
        arch=cell.axes.arch,
        provider=cell.axes.provider.label,
        case=cell.axes.case,
        verdict=verdict,
        reason=finding.got,
        signature=signature_of(verdict, (finding,), finding.got),
        evidence=Evidence.NONE,
        findings=(finding,),
        detail="".join(traceback.format_exception(error)),
    )


def _names(error: BaseException) -> str:
    return "<".join(cls.__name__ for cls in type(error).__mro__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


@contextlib.contextmanager
def _output_to(path: Path | None, header: str = "") -> Iterator[None]:
    """Send file descriptors 1 and 2 to ``path``, so that what C++ prints before it aborts is not lost."""
    if path is None:
        yield
        return
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    saved = [os.dup(1), os.dup(2)]
    try:
        _flush()
        os.write(log, header.encode())
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        _flush()
        for number, descriptor in enumerate(saved, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(log)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
