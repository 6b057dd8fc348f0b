"""What the plugin does in each process of a pytest run that names a matrix.

=================================  ==================================================================
process                            plugins
=================================  ==================================================================
xdist worker                       Cells
pytest that runs cells itself      Cells
pytest that commands workers       Workers
pytest that the user started       PlainRun besides: it plans, reconciles and reports, as runner.py does
=================================  ==================================================================
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.run import run_dir
from harness.run.journal import JournalWriter
from harness.run.leases import Lease, lease_workers
from harness.run.plan_file import Round, RunPlan, read_plan, read_round
from harness.run.plugin import MATRIX_KEY, ROUND_KEY
from harness.run.pytest_cells import Cells, sayer
from harness.run.reconcile import Reconciled
from harness.run.run_dir import RunDir
from harness.run.worker_gpu import hand_out, handed
from harness.types import Verdict

CONTROLLER = "controller"


def activate(config: pytest.Config, matrix: Path) -> None:
    """Register what this process needs.

    Raises:
        pytest.UsageError: the matrix, the environment or a pytest option makes the run impossible.
    """
    workerinput = getattr(config, "workerinput", None)
    given = workerinput.get(ROUND_KEY) if workerinput is not None else config.getoption("harness_round")
    if given is None:
        from harness.run.pytest_plain import activate_plain

        activate_plain(config, matrix)
        return
    entry, run = read_round(Path(given)), run_dir.of_round_file(Path(given))
    plan = read_plan(run.plan)
    if workerinput is not None:
        cells = Cells(matrix, plan, entry, run, worker=workerinput["workerid"], lease=handed(os.environ))
        config.pluginmanager.register(cells)
        return
    leave_with_parent()
    if is_distributed(config):
        allow_restarts(config, len(entry.ids))
        config.pluginmanager.register(Workers(matrix, run, plan, entry))
    else:
        config.pluginmanager.register(Cells(matrix, plan, entry, run))
        config.pluginmanager.register(Silent())


class Silent:
    """runner.py shows progress itself; at -n 0 pytest shares its terminal and must leave it to a debugger."""

    def pytest_plugin_registered(self, plugin: object, manager: pytest.PytestPluginManager) -> None:
        if manager.get_name(plugin) == "terminalreporter":
            manager.unregister(plugin)


def is_distributed(config: pytest.Config) -> bool:
    """True when xdist workers will run the cells."""
    return config.getoption("dist", "no") != "no" and bool(config.getoption("tx", None))


def allow_restarts(config: pytest.Config, cells: int) -> None:
    """Let xdist replace as many workers as there are cells, and a few that die before their first.

    Its own default is 4 per worker, after which it drops the rest of the cells. Not unlimited: a worker that dies while
    it starts would be replaced for ever.
    """
    config.option.maxworkerrestart = str(cells + 4 * len(config.getoption("tx")))


def leave_with_parent() -> None:
    """End this process group when the front is gone, however it went; otherwise a killed front leaves a run behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), 9)
        os._exit(2)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


class Workers:
    """In the pytest that commands xdist workers: hand them their round and a GPU each, and write down how they die."""

    def __init__(self, matrix: Path, run: RunDir, plan: RunPlan, entry: Round) -> None:
        self._matrix = matrix
        self._session: Any = None  # xdist's DSession, which has no type that one could name
        self._run = run
        self._plan = plan
        self._entry = entry
        self._journal = JournalWriter(run.journal, CONTROLLER, entry.number)
        self._selected = False
        self._leases: list[Lease] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: Sequence[Any]) -> None:
        if self._plan.gpus:
            say = sayer(self._run, self._entry, CONTROLLER, config)
            self._leases = lease_workers(os.environ, self._plan.gpus, len(specs), self._plan.run_id, say)
            hand_out(specs, self._leases)

    def give_gpus_back(self) -> None:
        """The workers are gone; their leases may go to whoever runs what is left."""
        for lease in self._leases:
            lease.release()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[ROUND_KEY] = str(self._run.round_file(self._entry.number))
        node.workerinput[MATRIX_KEY] = str(self._matrix)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session.config.pluginmanager.getplugin("dsession")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        if not self._selected:
            self._selected = True
            cells = self._plan.by_id
            self._journal.write("selected", ids=[name for name in map(cell_name, ids) if name in cells])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self._journal.write("exit", of=node.gateway.id, status=_status_of(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Say what the journal knows, instead of xdist's guess at which item was running."""
        from harness.run.supervise import Supervisor

        cell = self._plan.by_id.get(cell_name(crashitem))
        if cell is None:  # a test beside the matrix
            return
        of_cell = dataclasses.replace(self._plan, cells=(cell,))
        amend(report, Supervisor(self._run, of_cell, (), workers=1).reconciled(), cell.id)
        session = self._session
        if report.failed and session is not None and session.maxfail:
            # xdist does not count a crash for -x.
            session.countfailures += 1
            if session.countfailures >= session.maxfail:
                session.shouldstop = f"stopping after {session.countfailures} failures"

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if is_users_interrupt(excinfo):
            self._journal.write("stopped")


def is_users_interrupt(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Ctrl-C or leaving the debugger, not -x (pytest and xdist end the session by exceptions derived from it)."""
    return excinfo.type in (KeyboardInterrupt, pytest.exit.Exception)


def cell_name(nodeid: str) -> str:
    """The cell id in a pytest node id."""
    return nodeid.partition("::")[2]


def amend(report: pytest.TestReport, state: Reconciled, cell_id: str) -> None:
    """Give the report of a crashed item the outcome that the cell really has."""
    report.location = (report.location[0], None, cell_id)
    result = next((result for result in state.results if result.id == cell_id), None)
    if result is None or cell_id in state.unstarted:
        # xdist blames the next item when a worker dies between two; that one is still to be run.
        report.outcome = "skipped"
        report.longrepr = ("", 0, f"{cell_id}: its worker died before it was started; it will be started again")
        return
    if result.verdict.is_red and result.gates:
        report.longrepr = "\n\n".join(filter(None, [f"{result.verdict.value}: {result.reason}", result.detail]))
        return
    report.when = "call"
    report.longrepr = None
    report.outcome = "passed"
    if result.verdict is not Verdict.PASS:
        report.outcome = "skipped"
        report.longrepr = ("", 0, f"{result.verdict.value}: {result.reason}")


def _status_of(node: Any) -> int | None:
    """How the worker's process ended, negative for a signal; execnet (2.0, 2.1) keeps it behind private names."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if process is None:
        return None
    deadline = time.monotonic() + 2.0
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    status: int | None = process.poll()
    return status
