"""In a process that runs cells: the matrix as a test file, its cells as items."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from harness.run import plugin
from harness.run.cell_process import IN_PROCESS, CellProcess, Unusable
from harness.run.journal import JournalWriter
from harness.run.leases import Lease, lease_alone, lease_workers
from harness.run.plan_file import Round, RunPlan
from harness.run.run_dir import RunDir, discard
from harness.run.worker_gpu import GpuError, OwnGpu
from harness.types import Cell, CellResult, Verdict

# Options of pytest's that take collected items away, by their names in its configuration.
DESELECTING = ("keyword", "markexpr", "deselect", "lf", "stepwise")


class CellRed(Exception):
    """A cell is not as expected; pytest counts it as a failure."""

    def __init__(self, result: CellResult) -> None:
        super().__init__(result.id, result.reason)
        self.result = result


class MatrixFile(pytest.File):
    """A matrix; its items are the cells of the round, in the round's order."""

    cells: Sequence[Cell] = ()
    owner: Cells

    def collect(self) -> Iterator[pytest.Item]:
        for cell in self.cells:
            # The node id as text: from a name alone pytest 9.2 builds one without parameters, which --lf can't find.
            item: CellItem = CellItem.from_parent(self, name=cell.id, nodeid=f"{self.nodeid}::{cell.id}")
            item.cell = cell
            item.owner = self.owner
            yield item


class CellItem(pytest.Item):
    """One cell."""

    cell: Cell
    owner: Cells

    def runtest(self) -> None:
        result = self.owner.run(self)
        self.user_properties += [("verdict", result.verdict.value), ("evidence", result.evidence.value)]
        if result.verdict.is_red and result.gates:
            raise CellRed(result)
        if result.verdict is Verdict.SKIP:
            pytest.skip(result.reason)
        if result.verdict is not Verdict.PASS:
            kind = result.verdict.value if result.gates else f"quarantined {result.verdict.value}"
            pytest.xfail(f"{kind}: {result.reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        if isinstance(excinfo.value, CellRed):
            return describe(excinfo.value.result)
        if isinstance(excinfo.value, Unusable):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


def _names(items: Sequence[pytest.Item]) -> list[str]:
    """The ids of the cells among ``items``."""
    return [item.name for item in items if isinstance(item, CellItem)]


def describe(result: CellResult) -> str:
    """A red cell as text: every finding, then the stack."""
    findings = [str(finding) for finding in result.findings] or [result.reason]
    return "\n".join(filter(None, [f"{result.verdict.value}: {result.id}", *findings, "", result.detail]))


class Cells:
    """Collects the matrix and runs its cells in this process.

    ``run`` is None when nothing will be run (--collect-only). ``lease`` is a worker's GPU; a pytest that runs cells
    itself leases one when its session starts.
    """

    def __init__(
        self,
        matrix: Path,
        plan: RunPlan,
        entry: Round,
        run: RunDir | None,
        *,
        worker: str = IN_PROCESS,
        lease: Lease | None = None,
    ) -> None:
        self._matrix = matrix.resolve()
        self._plan = plan
        self._entry = entry
        self._run = run
        self._worker = worker
        self._lease = lease
        self._own_gpu: OwnGpu | None = None
        self._process: CellProcess | None = None
        self.selected: tuple[str, ...] | None = None  # what pytest kept, once it has collected
        self._collected: set[str] = set()
        self._deselected: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Before test files are collected, which may import torch."""
        if self._worker != IN_PROCESS or self._run is None or not self._plan.gpus:
            return
        say = sayer(self._run, self._entry, self._worker, session.config)
        if self._entry.attempt > 1:
            lease = lease_alone(os.environ, self._plan.gpus, self._plan.run_id, say)
        else:
            (lease,) = lease_workers(os.environ, self._plan.gpus, 1, self._plan.run_id, say)
        try:
            self._own_gpu = OwnGpu(lease, self._plan.gpus)
        except GpuError as error:
            if session.config.getoption("harness_round") is not None:
                raise  # nothing of the user's is loaded there: a defect of the harness
            discard(self._run)
            raise pytest.UsageError(str(error)) from error
        self._lease = lease

    def give_gpus_back(self) -> None:
        """No cell will run in this process any more; one that must be alone may run elsewhere."""
        if self._own_gpu is not None:
            self._own_gpu.give_back()
            self._own_gpu = None

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> MatrixFile | None:
        if file_path.resolve() != self._matrix:
            return None
        cells = self._plan.by_id
        node: MatrixFile = MatrixFile.from_parent(parent, path=file_path)
        node.cells = [cells[cell_id] for cell_id in self._entry.ids]
        node.owner = self
        return node

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self._collected.update(_names([item]))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected.update(_names(items))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.selected = tuple(_names(session.items))
        dropped = self._dropped(session.config)
        if dropped and self._run is not None:
            journal = JournalWriter(self._run.journal, self._worker, self._entry.number)
            journal.write("dropped", ids=dropped)
            journal.close()

    def _dropped(self, config: pytest.Config) -> list[str]:
        """Cells that are gone although no option of pytest's took them away: a conftest or a plugin did.

        Node ids and --lf keep cells from being collected; options that deselect say so to plugins. Without such an
        option, whoever deselects is not the user.
        """
        expected = set(self._entry.ids)
        if any("::" in argument for argument in config.args) or config.getoption("lf", False):
            expected &= self._collected
        if any(config.getoption(name, None) for name in DESELECTING):
            expected -= self._deselected
        expected -= set(self.selected or ())
        return [cell_id for cell_id in self._entry.ids if cell_id in expected]

    def run(self, item: CellItem) -> CellResult:
        """Run the cell of ``item``; the last one of a poisoned process ends that process."""
        try:
            process = self._process or self._prepared()
            result = process.run(item.cell)
        except Unusable as error:
            item.session.shouldstop = str(error)
            raise
        if process.retired:
            self._leave(item.session)
        return result

    def _prepared(self) -> CellProcess:
        if self._run is None:
            raise RuntimeError("cells were only to be collected")
        self._process = CellProcess(
            self._run,
            self._plan,
            self._entry,
            self._worker,
            execute=plugin.execute_cell,
            peak_gpu_mib=plugin.peak_gpu_mib,
            lease=self._lease,
        )
        self._process.prepare(plugin.describe_host, self._preload)
        return self._process

    def _preload(self) -> None:
        """Import what the plan's cells name."""
        plugin.load_cases(dict.fromkeys(cell.axes.case for cell in self._plan.cells))
        targets = {c.axes.target: c.origin.get("target", "") for c in self._plan.cells if c.axes.target}
        if targets:
            # This process reads a copy of the matrix in the run's directory; the plan has the user's own path.
            plugin.load_targets(targets, Path(self._plan.matrix).resolve().parent)

    def _leave(self, session: pytest.Session) -> None:
        """No later cell may run here. The result is on the disk, so what pytest or xdist think no longer matters."""
        if self._worker == IN_PROCESS:
            session.shouldstop = "this process may run no further cell; the rest follows in a fresh one"
            return
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def pytest_enter_pdb(self) -> None:
        if self._process is not None:
            self._process.pause()

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if self._process is not None and excinfo.type in (KeyboardInterrupt, pytest.exit.Exception):
            self._process.stopped()

    def pytest_unconfigure(self) -> None:
        if self._process is not None:
            self._process.close()
        self.give_gpus_back()


def sayer(run: RunDir, entry: Round, worker: str, config: pytest.Config) -> Callable[[str], None]:
    """Tells whoever watches the journal, and whoever sees this pytest's terminal, why nothing happens."""
    reporter = config.pluginmanager.getplugin("terminalreporter")

    def say(message: str) -> None:
        journal = JournalWriter(run.journal, worker, entry.number)
        journal.write("waiting", message=message)
        journal.close()
        if reporter is not None:
            reporter.write_line(f"fp8 harness: {message}")

    return say
