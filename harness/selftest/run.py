"""The run beneath a selftest: cells as in any run, then the faults of the front, and where it all stands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness.cli.errors import UsageError
from harness.cli.output import progress_for
from harness.report import RunInfo
from harness.report.store import write_text_atomically
from harness.run import run_dir
from harness.run.finish import STUCK, finish_supervised
from harness.run.plan_file import RunPlan
from harness.run.reconcile import Reconciled
from harness.run.rounds import Interrupts
from harness.run.run_dir import RunDir, shown
from harness.run.supervise import Observer, Supervisor
from harness.selftest.front_outcomes import front_outcomes
from harness.selftest.outcome import Outcome, as_expected
from harness.selftest.plan import Selftest
from harness.selftest.render import FILE
from harness.types import CellResult, Verdict

FRONT = "front"  # directory of the runs that a fault of the front had broken


@dataclass(frozen=True)
class Ran:
    """``problems``: what was wrong with the run itself; ``directory``: where its reports stand."""

    results: Mapping[str, CellResult]
    front: tuple[Outcome, ...]
    directory: Path
    interrupted: bool
    problems: tuple[str, ...]


def run_selftest(
    plan: RunPlan,
    directory: RunDir,
    selftest: Selftest,
    console: Console,
    verbosity: int,
    answer: Callable[[Ran], str],
) -> Ran:
    """Run every cell of ``plan`` and every fault of the front, write the reports of the run, and publish them.

    Args:
        answer: the text of :data:`FILE`, which is published with the reports.

    Raises:
        OSError: the directory can't be written; what was recorded stays under its temporary name.
        UsageError: a case file or a fault can't be imported by a worker; nothing is left behind.
    """
    with Interrupts() as interrupts:
        supervisor, state = _cells(plan, directory, selftest, console, verbosity, interrupts)
        if supervisor.usage_error:
            run_dir.discard(directory)
            raise UsageError(supervisor.usage_error)
        front = front_outcomes(
            selftest.front,
            directory.work / FRONT,
            workers=plan.workers,
            timeout=plan.timeout,
            stopped=lambda: supervisor.stopped,
        )
    stuck = [STUCK] if supervisor.stuck and not supervisor.stopped else []

    def ran(info: RunInfo) -> Ran:
        audited = [str(finding) for finding in info.audit.findings] if info.audit else []
        problems = (*state.faults, *stuck, *audited)
        results = {result.id: result for result in state.results}
        return Ran(results, tuple(front), shown(directory.final), supervisor.stopped, problems)

    def write(info: RunInfo) -> None:
        write_text_atomically(directory.work / FILE, [answer(ran(info))])

    return ran(finish_supervised(supervisor, state, write).info)


def _cells(
    plan: RunPlan, directory: RunDir, selftest: Selftest, console: Console, verbosity: int, interrupts: Interrupts
) -> tuple[Supervisor, Reconciled]:
    """The run's cells; progress counts a fault that was caught as what was wanted."""
    interactive = plan.workers == 0
    order = [cell.id for cell in plan.cells]
    supervisor = Supervisor(directory, plan, order, plan.workers, interactive=interactive, interrupts=interrupts)
    faulty = {one.cell.id for one in selftest.seeded}
    with progress_for(
        console, len(plan.cells), verbosity, interactive=interactive, word_of=lambda result: _word(result, faulty)
    ) as progress:
        supervisor.observer = Observer(
            progress.started, lambda result: progress.finished(as_expected(result, selftest.seeded)), progress.note
        )
        return supervisor, supervisor.complete()


def _word(result: CellResult, faulty: Collection[str]) -> str:
    """What progress calls a result of :func:`as_expected`."""
    if result.id not in faulty:
        return "clean" if result.verdict is Verdict.PASS else f"{result.verdict.value} without a fault"
    return {Verdict.PASS: "caught", Verdict.SKIP: "skip"}.get(result.verdict, "not caught")
