"""Rounds until every planned cell has a result, or until nothing more can be done. Used by the front and the plugin.

A round ends early when its pytest dies: a crash where pytest itself runs the cells (``-n 0``), a kill from outside,
pytest-xdist giving up. What was not reached is started again; so ``-n 0``, 1 and 2 end with the same verdicts.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.run.journal import Journal, Process, Record, read_journal
from harness.run.plan_file import Round, RunPlan
from harness.run.postmortem import Death, cell_log, examine, signal_name
from harness.run.reconcile import RETRIED, Ending, Reconciled, reconcile
from harness.run.rounds import STALL_GRACE, Interrupts, RoundEnd, run_round
from harness.run.run_dir import RunDir
from harness.types import CellResult, Verdict

# Two rounds in a row that start no new cell: the next one would not either.
MAX_IDLE_ROUNDS = 2


@dataclass
class Observer:
    """What a front shows while rounds run. The default shows nothing."""

    started: Callable[[str, str], None] = lambda cell_id, worker: None
    finished: Callable[[CellResult], None] = lambda result: None
    note: Callable[[str], None] = lambda text: None


@dataclass
class Supervisor:
    """A run in progress: its directory, its plan, and the rounds so far.

    ``workers``: worker processes of a round, 0 for the pytest process itself; ``interactive``: it keeps the terminal.
    """

    run: RunDir
    plan: RunPlan
    order: Sequence[str]
    workers: int
    interactive: bool = False
    observer: Observer = field(default_factory=Observer)
    interrupts: Interrupts = field(default_factory=Interrupts)
    ends: list[RoundEnd] = field(default_factory=list)
    _idle: int = 0
    _told: set[str] = field(default_factory=set)
    _running: dict[str, str] = field(default_factory=dict)  # worker -> cell
    _noted: str = ""

    def complete(self) -> Reconciled:
        """Start rounds while there is something to do; returns one result for every planned cell.

        Raises:
            OSError: the run's directory can't be read or written, or pytest can't be started.
        """
        state = self.reconciled()
        while True:
            entry = self._next(state)
            if entry is None:
                return state
            if self.ends:
                self.observer.note(_why(entry, self.ends[-1]))
            alone = entry.attempt > 1
            end = run_round(
                self.run,
                self.plan,
                entry,
                workers=0 if alone else min(self.workers, len(entry.ids)),
                maxfail=max(self.plan.maxfail - state.reds, 0) if not alone else 0,
                interactive=self.interactive and not alone,
                watch=self._watch,
                interrupts=self.interrupts,
            )
            self.ends.append(end)
            before = len(state.unstarted)
            state = self.reconciled()
            self._idle = self._idle + 1 if not alone and len(state.unstarted) == before else 0
            if not self.usage_error:
                self._tell(state)

    def reconciled(self) -> Reconciled:
        """The state of the run from everything on the disk."""
        journal = read_journal(self.run.journal)
        ending = Ending(
            deaths=post_mortems(self.run, journal, self.ends, self.plan.timeout),
            interrupted=self.stopped,
            why_not_run=str(self.ends[-1]) if self.ends else "no process was started",
        )
        today = datetime.date.today()
        state = reconcile(self.plan, journal, ending, today=today)
        if 0 < self.plan.maxfail <= state.reds and not self.stopped:
            # Whether -x was reached follows from the results; what it left out is not missing.
            ending = Ending(ending.deaths, stopped_by_maxfail=True)
            state = reconcile(self.plan, journal, ending, today=today)
        return state

    @property
    def stopped(self) -> bool:
        """True when the user interrupted."""
        return self.interrupts.seen or any(end.stopped for end in self.ends)

    @property
    def stuck(self) -> bool:
        """True when cells are left that no round could start: the harness failed, not the cells."""
        return self._idle >= MAX_IDLE_ROUNDS

    @property
    def usage_error(self) -> str:
        """The first message about the user's input that a process recorded; empty without one."""
        found = next(read_journal(self.run.journal).of_type("usage"), None)
        return str(found.data.get("message", "")) if found else ""

    def _next(self, state: Reconciled) -> Round | None:
        number = len(self.ends) + 1
        if self.stopped or (self.ends and self.usage_error):
            return None
        if state.unstarted and not state.left_out and not self.stuck:
            missing = set(state.unstarted)
            return Round(number, tuple(cell_id for cell_id in self.order if cell_id in missing))
        tried = {cell_id for end in self.ends if end.entry.attempt > 1 for cell_id in end.entry.ids}
        for cell_id in state.to_retry:
            if cell_id not in tried:
                return Round(number, (cell_id,), attempt=2)
        return None

    def _watch(self, record: Record) -> None:
        if record.type == "start":
            self._running[record.worker] = record.cell_id
            self.observer.started(record.cell_id, record.worker)
        elif record.type == "end":
            self._running.pop(record.worker, None)
            if record.attempt == 1 and record.result.verdict not in RETRIED:
                self._tell_one(record.result)
        elif record.type == "waiting" and record.data.get("message") != self._noted:
            self._noted = str(record.data.get("message"))
            self.observer.note(self._noted)
        elif record.type == "exit":
            cell_id = self._running.pop(str(record.data.get("of")), None)
            if cell_id is not None:
                self._tell(self.reconciled(), only=cell_id)

    def _tell(self, state: Reconciled, only: str | None = None) -> None:
        """Show results that no end line announced: crashes, and what a retry decided."""
        undecided = {*state.unstarted, *state.to_retry}
        for result in state.results:
            if result.id not in undecided and only in (None, result.id):
                self._tell_one(result)

    def _tell_one(self, result: CellResult) -> None:
        if result.id not in self._told:
            self._told.add(result.id)
            self.observer.finished(result)


def _why(entry: Round, last: RoundEnd) -> str:
    if entry.attempt > 1:
        return f"once more, alone in a fresh process: {entry.ids[0]}"
    count = len(entry.ids)
    return f"{last}; {count} cell{'' if count == 1 else 's'} left: starting again"


def post_mortems(run: RunDir, journal: Journal, ends: Sequence[RoundEnd], timeout: float) -> Mapping[Process, Death]:
    """Examine every process that left a cell open."""
    opened: dict[Process, Record] = {}
    for record in journal.of_type("start", "end"):
        if record.type == "start":
            opened[record.process] = record
        else:
            opened.pop(record.process, None)
    statuses = {(str(r.data.get("of")), r.round): r.data.get("status") for r in journal.of_type("exit")}
    rounds = {end.entry.number: end for end in ends}
    deaths = {process: _examined(run, record, statuses, rounds, timeout) for process, record in opened.items()}
    return {process: death for process, death in deaths.items() if death is not None}


def _examined(
    run: RunDir,
    start: Record,
    statuses: Mapping[tuple[str, int], int | None],
    rounds: Mapping[int, RoundEnd],
    timeout: float,
) -> Death | None:
    """None for a process that was ended only because the user interrupted."""
    end = rounds.get(start.round)
    died = statuses.get((start.worker, start.round))  # a worker that died on its own, as its parent saw it
    # Without workers pytest ran the cell itself.
    seen = died if died is not None or end is None or end.workers else end.status
    stack, log = _text(run, start.process), cell_log(run.log_file(start.process))
    if end is None or stack.strip() or died is not None:
        return examine(stack, log, seen, timeout)
    if end.stopped:
        return None
    if end.stalled:
        reason = f"still running {STALL_GRACE:g} s after its time-out: its process did not even end itself"
        return Death(Verdict.TIMEOUT, "run.timeout", reason, log)
    if end.workers and (end.status or 0) < 0:
        reason = f"the pytest process that commanded this worker was killed by {signal_name(-(end.status or 0))}"
        return Death(Verdict.INFRA, "run.infra", reason, log)
    return examine(stack, log, seen, timeout)


def _text(run: RunDir, process: Process) -> str:
    try:
        return run.stack_file(process).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
