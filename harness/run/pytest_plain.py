"""``pytest configs/ci.yaml`` without runner.py: plan first, reconcile and report at the end, just as honestly."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.plan import Plan, PlanError, load_matrix
from harness.report import print_summary
from harness.run import run_dir
from harness.run.environment import child_defaults, now, of_run, refusals
from harness.run.finish import Finished, finish_supervised, judged_require
from harness.run.gpus import visible_gpus
from harness.run.journal import dropped_ids, read_journal
from harness.run.order import expensive_first
from harness.run.plan_file import Round, RunPlan, rewrite_plan, write_plan, write_round
from harness.run.pytest_cells import Cells
from harness.run.pytest_roles import Workers, allow_restarts, cell_name, is_distributed, is_users_interrupt
from harness.run.rounds import Interrupts, RoundEnd
from harness.run.run_dir import RunDir, RunDirError, why_unwritable
from harness.run.supervise import Observer, Supervisor
from harness.run.worker_count import too_many
from harness.types import CellResult

COMPLETE_MODES = ("load", "worksteal")
MAX_TIMEOUT = 1e6


def activate_plain(config: pytest.Config, matrix: Path) -> None:
    """Plan, and register what runs and reports.

    Raises:
        pytest.UsageError: with one message for each mistake.
    """
    refuse_impossible(config)
    plan = make_plan(config, matrix)
    entry = Round(1, expensive_first(plan.cells))
    if config.option.collectonly:
        config.pluginmanager.register(Cells(matrix, plan, entry, None))
        return
    distribute(config)
    workers = worker_count(config.getoption("tx")) if is_distributed(config) else 0
    gpus = visible_gpus(os.environ)
    plan = dataclasses.replace(plan, workers=workers, gpus=gpus, notes=(*plan.notes, *too_many(workers, gpus)))
    os.environ.update(child_defaults(os.environ))
    try:
        run = run_dir.create(plan.run_id, config.getoption("harness_report_dir"))
    except RunDirError as error:
        raise pytest.UsageError(str(error)) from error
    try:
        write_plan(run.plan, plan)
        write_round(run.round_file(1), entry)
    except OSError as error:
        run_dir.discard(run)
        raise pytest.UsageError(why_unwritable(run.work.parent, error)) from error
    runs = Workers(matrix, run, plan, entry) if workers else Cells(matrix, plan, entry, run)
    if workers:
        allow_restarts(config, len(plan.cells))
    config.pluginmanager.register(runs)
    config.pluginmanager.register(PlainRun(run, plan, entry, runs))


def refuse_impossible(config: pytest.Config) -> None:
    """Raises pytest.UsageError for an environment or an option under which no honest run is possible."""
    if sys.flags.optimize:
        raise pytest.UsageError("python -O strips the assert statements of the libraries under test: run without it")
    refused = refusals(os.environ)
    if refused:
        raise pytest.UsageError(*map(str, refused))
    mode = config.getoption("dist", "no")
    if mode not in ("no", *COMPLETE_MODES):
        raise pytest.UsageError(f"--dist {mode} loses or repeats cells after a crash: use --dist load or worksteal")
    if config.getoption("maxworkerrestart", None) == "0":
        raise pytest.UsageError("--max-worker-restart=0 drops cells after a crash: leave it out")
    remote = [spec for spec in config.getoption("tx", None) or () if "popen" not in spec]
    if remote:
        raise pytest.UsageError(f"--tx {remote[0]}: workers must be processes of this machine (popen)")


def distribute(config: pytest.Config) -> None:
    """One worker where the user asked for none and for nothing that needs this process: a crash then ends only that."""
    wants_this_process = config.getoption("usepdb", False) or config.getoption("trace", False)
    asked = config.getoption("numprocesses", None) is not None or is_distributed(config)
    if config.pluginmanager.hasplugin("xdist") and not asked and not wants_this_process:
        config.option.dist, config.option.tx, config.option.numprocesses = "load", ["popen"], 1


def worker_count(specs: Sequence[str]) -> int:
    """Workers of xdist's ``--tx`` specifications: ``popen`` is one, ``3*popen`` are three."""
    heads = (spec.partition("*")[0] for spec in specs)
    return sum(int(head) if head.isdigit() else 1 for head in heads)


def make_plan(config: pytest.Config, path: Path) -> RunPlan:
    """Raises pytest.UsageError with one message for each mistake in the matrix."""
    timeout: float = config.getoption("harness_timeout")
    if not 0 < timeout < MAX_TIMEOUT:
        raise pytest.UsageError(f"--harness-timeout {timeout:g}: expected a number of seconds above 0")
    try:
        matrix = load_matrix(path)
    except PlanError as error:
        raise pytest.UsageError(*str(error).splitlines()) from error
    full: Plan = matrix.full
    return RunPlan(
        run_id=run_dir.new_run_id(),
        matrix=matrix.path,
        name=matrix.name,
        require=matrix.require,
        cells=full.cells,
        planned=len(full.cells),
        timeout=timeout,
        maxfail=config.getoption("maxfail") or 0,
        command=("pytest", *map(str, config.invocation_params.args)),
        env=of_run(os.environ),
        started=now(),
    )


class PlainRun:
    """Reconciles, runs what was not reached, reports, and sets the exit code."""

    def __init__(self, run: RunDir, plan: RunPlan, entry: Round, runs: Cells | Workers) -> None:
        self._run = run
        self._plan = plan
        self._entry = entry
        self._runs = runs
        self._interrupted = False
        self._foreign_failures = 0
        self._finished: Finished | None = None
        self._results: Sequence[CellResult] = ()
        self._message = ""
        self._say: Callable[[str], None] = lambda text: None
        self._picked_by: list[str] = []

    def pytest_report_header(self) -> str:
        where = f"{self._plan.workers} worker(s)" if self._plan.workers else "this process: a crash ends the run"
        gpus = f"; GPUs: {len(self._plan.gpus)}, one a worker" if self._plan.gpus else ""
        notes = "".join(f"\nfp8 harness: warning: {note}" for note in self._plan.notes)
        return f"fp8 harness: {len(self._plan.cells)} cells of {self._plan.matrix} in {where}{gpus}{notes}"

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            self._say = reporter.write_line
        config = session.config
        named = any("::" in argument for argument in config.args)
        self._picked_by = ["a node id"] * named + ["--last-failed"] * bool(config.getoption("lf", False))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and cell_name(report.nodeid) not in self._plan.by_id:
            self._foreign_failures += 1

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self._interrupted = self._interrupted or is_users_interrupt(excinfo)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        status = int(exitstatus)
        resume = self._may_resume(status)
        self._runs.give_gpus_back()  # what follows runs in processes of its own
        try:
            with Interrupts() as interrupts:
                code = self._conclude(self._supervisor(status, interrupts), resume=resume)
        except Exception:  # a defect of the harness; pytest would end with 1 as if a test had failed
            self._message = f"internal error; what was recorded is in {self._run.work}\n{traceback.format_exc()}"
            code = int(pytest.ExitCode.INTERNAL_ERROR)
        session.exitstatus = merged(code, status, gave_up=not resume, others_failed=self._foreign_failures > 0)

    def _supervisor(self, status: int, interrupts: Interrupts) -> Supervisor:
        plan = self._selected()
        require, notes = judged_require(plan.require, self._picked_by, len(plan.cells), plan.planned)
        plan = dataclasses.replace(plan, require=require, notes=(*plan.notes, *notes))
        with contextlib.suppress(OSError):  # whoever reports next says that the disk is full
            rewrite_plan(self._run.plan, plan)
        return Supervisor(
            self._run,
            plan,
            self._entry.ids,
            plan.workers,
            observer=Observer(note=lambda text: self._say(f"fp8 harness: {text}")),
            interrupts=interrupts,
            ends=[RoundEnd(self._entry, plan.workers, status, stopped=self._interrupted)],
        )

    def _selected(self) -> RunPlan:
        """The plan without what -k, --deselect or --lf took away; what something else took away stays, as not run."""
        journal = read_journal(self._run.journal)
        kept = self._runs.selected if isinstance(self._runs, Cells) else None
        if kept is None:
            record = next(journal.of_type("selected"), None)
            kept = tuple(record.data["ids"]) if record is not None else None
        if kept is None:
            return self._plan
        names = {*kept, *dropped_ids(journal)}
        return dataclasses.replace(self._plan, cells=tuple(cell for cell in self._plan.cells if cell.id in names))

    def _may_resume(self, exitstatus: int) -> bool:
        """False where pytest gave up for a reason that is not ours: a broken test file beside the matrix, say."""
        began = any(read_journal(self._run.journal).of_type("start"))
        stopped_by_others = self._foreign_failures > 0 and self._plan.maxfail > 0
        return (began or exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)) and not stopped_by_others

    def _conclude(self, supervisor: Supervisor, *, resume: bool) -> int:
        if not supervisor.plan.cells:
            run_dir.discard(self._run)
            return int(pytest.ExitCode.NO_TESTS_COLLECTED)
        try:
            state = supervisor.complete() if resume else supervisor.reconciled()
        except OSError as error:
            return self._unwritable("the run could not go on", error)
        if supervisor.usage_error:
            self._message = supervisor.usage_error
            run_dir.discard(self._run)
            return int(pytest.ExitCode.USAGE_ERROR)
        try:
            self._finished = finish_supervised(supervisor, state)
        except OSError as error:
            return self._unwritable("the reports could not be written", error)
        self._results = state.results
        return self._finished.info.exit_code

    def _unwritable(self, what: str, error: OSError) -> int:
        work = self._run.work
        self._message = f"{what}: {why_unwritable(work.parent, error)}; what was recorded is in {work}"
        return int(pytest.ExitCode.INTERNAL_ERROR)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        self._show(terminalreporter)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        # pytest has no summary after an internal error, which must not hide what was measured.
        self._show(config.pluginmanager.getplugin("terminalreporter"))

    def _show(self, reporter: Any) -> None:
        """Once, on pytest's own terminal writer."""
        finished, self._finished = self._finished, None
        message, self._message = self._message, ""
        if reporter is None:
            return
        if message:
            reporter.write_line(f"fp8 harness: {message}", red=True)
        if finished is None:
            return
        text = io.StringIO()
        marked = bool(reporter.hasmarkup)
        width = shutil.get_terminal_size().columns
        console = Console(file=text, width=width, force_terminal=marked, no_color=not marked)
        verbosity = min(max(reporter.verbosity, -1), 1)
        print_summary(console, finished.info, self._results, verbosity=verbosity, directory=finished.directory)
        reporter.write(text.getvalue())
        for warning in finished.warnings:
            reporter.write_line(f"fp8 harness: {warning}")


def merged(code: int, exitstatus: int, *, gave_up: bool, others_failed: bool) -> int:
    """The exit code of the whole pytest run.

    Args:
        code: of the matrix, as runner.py would end.
        exitstatus: pytest's own. It takes a cell's first attempt for its verdict, and -x or a retired process for an
            interruption; where other tests stand beside the matrix it also speaks of those.
        gave_up: pytest stopped before any cell for a reason of its own.
        others_failed: a test beside the matrix failed.
    """
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
        return code
    of_tests = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    if exitstatus == pytest.ExitCode.INTERNAL_ERROR or (gave_up and exitstatus not in of_tests):
        return exitstatus
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        return exitstatus
    return code or int(others_failed)
