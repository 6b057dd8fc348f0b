"""Planned cells + what processes wrote down -> exactly one result for every planned cell. Pure functions.

The journal is trusted, never pytest's or xdist's own idea of what happened: xdist blames a crash on the item that it
believes was running, and loses or repeats items in some modes (pytest-xdist#784, #1327).

What one attempt can leave, and what becomes of it:

=========================================  ===============================================================
start and end in one process               the end's result
start, and the process died                ``crash``, ``timeout`` or ``infra``, from its post-mortem
start, and a line of its file is broken    ``error``: the result was cut short
start, and we ended it after Ctrl-C        ``error``: interrupted
no start                                   ``error: not run``; with -x, ``skip`` with that reason
no start, and dropped from pytest's list   ``error: not run``, and no later round runs it
end without a start                        ``error``: a line is missing
several outcomes of one attempt, unequal   ``flaky``: somebody repeated the cell without recording a retry
several outcomes of one attempt, equal     ``error``: reported twice, a defect of the harness
=========================================  ===============================================================

A second attempt follows one outcome, ``infra`` or ``oom``, alone on the machine in a fresh process. Its verdict stands,
and both attempts are recorded, but ``oom`` followed by a green is ``flaky``: whether a cell fits must not depend on its
neighbours.
"""

from __future__ import annotations

import dataclasses
import datetime
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.faults import stages
from harness.faults.fault import RAISED, UNMENDED, WANTED
from harness.judge.waivers import apply_waivers
from harness.providers.load import split_faults
from harness.run.journal import Journal, Process, Record, dropped_ids
from harness.run.plan_file import RunPlan
from harness.run.postmortem import Death, ended_with
from harness.signature import signature_of
from harness.types import Attempt, Cell, CellResult, Evidence, Finding, Verdict, axes_dict

DROPPED = "not run: dropped by something else than an option of pytest (a conftest, a plugin)"
RETRIED = (Verdict.INFRA, Verdict.OOM)
ENDED = "its process ended with "  # begins a note of a result that no process could write
GPU_FIELDS = ("index", "name", "uuid", "alone")


@dataclass(frozen=True)
class Ending:
    """How the run ended, as far as cells without a result are concerned.

    ``deaths``: post-mortems of the processes that left a cell open; a process that is missing here was not examined.
    ``why_not_run`` is what is said of cells that nothing started.
    """

    deaths: Mapping[Process, Death] = dataclasses.field(default_factory=dict)
    stopped_by_maxfail: bool = False
    interrupted: bool = False
    why_not_run: str = "no process started it"


@dataclass(frozen=True)
class Reconciled:
    """``results``: one for every planned cell, in the plan's order.

    ``faults`` are defects of the harness itself, which make the run an internal error. ``unstarted`` and ``to_retry``
    say what another round would have to do. ``left_out`` are the cells that -x kept from running.
    """

    results: tuple[CellResult, ...]
    faults: tuple[str, ...] = ()
    unstarted: tuple[str, ...] = ()
    to_retry: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def reds(self) -> int:
        """Cells with a result of their own that decide the exit code."""
        missing = {*self.unstarted}
        return sum(r.verdict.is_red and r.gates for r in self.results if r.id not in missing)


@dataclass(frozen=True)
class Outcome:
    """What one start of a cell led to. ``at``: when it was started, to tell what came first."""

    attempt: int
    at: float
    result: CellResult
    process: Process
    seconds: float = 0.0
    was_started: bool = True


@dataclass(frozen=True)
class _Machine:
    """What results that no worker could write need to know about it."""

    arch: str
    versions: Mapping[str, str]
    today: datetime.date
    gpus: Mapping[Process, Mapping[str, Any]] = dataclasses.field(default_factory=dict)  # of each process, its only one


def reconcile(plan: RunPlan, journal: Journal, ending: Ending, *, today: datetime.date) -> Reconciled:
    """One result for every planned cell. ``today`` decides whether waivers have expired."""
    machine = _machine(journal, today)
    outcomes, faults = _outcomes(plan, journal, ending, machine)
    results, unstarted, to_retry = [], [], []
    dropped = dropped_ids(journal)
    for cell in plan.cells:
        seen = outcomes[cell.id]
        if seen:
            result = _concluded(cell, seen, machine)
            if len(seen) == 1 and seen[0].attempt == 1 and result.verdict in RETRIED:
                to_retry.append(cell.id)
        elif cell.id in dropped:
            result = _made(cell, Verdict.ERROR, Finding("run.not_run", "a result", DROPPED), machine)
        else:
            result = _not_run(cell, ending)
            unstarted.append(cell.id)
        results.append(dataclasses.replace(result, repro=repro_command(plan, cell.id)))
    left_out = tuple(unstarted) if ending.stopped_by_maxfail and not ending.interrupted else ()
    return Reconciled(tuple(results), tuple(faults), tuple(unstarted), tuple(to_retry), left_out)


SELFTEST = ("python", "runner.py", "selftest")


def repro_command(plan: RunPlan, cell_id: str) -> str:
    """The command that runs one cell again, in the process that a debugger sees.

    A selftest's file is no matrix: there it is the selftest of the cell's faults.
    """
    if plan.command[:3] == SELFTEST:
        _, faults = split_faults(next(cell for cell in plan.cells if cell.id == cell_id).axes.provider.name)
        named = [word for name in faults for word in ("--fault", name)]
        words = [*SELFTEST, "--matrix", plan.matrix, *named, "-n", "0"]
        return " ".join(shlex.quote(word) for word in words)
    words = ["python", "runner.py", "--matrix", plan.matrix, *plan.overrides]
    words += ["--baseline", plan.baseline.file] if plan.baseline else []
    words += ["--cell", cell_id, "-n", "0"]
    return " ".join(shlex.quote(word) for word in words)


def _machine(journal: Journal, today: datetime.date) -> _Machine:
    gpus = gpus_of(journal)
    for record in journal.of_type("host"):
        host = record.data.get("host", {})
        return _Machine(str(host.get("arch", "host")), host.get("versions", {}), today, gpus)
    return _Machine("host", {}, today, gpus)


def gpus_of(journal: Journal) -> Mapping[Process, Mapping[str, Any]]:
    """The one GPU of each process that leased one: index, name, uuid, alone, in_use_mib. What torch says of it counts
    where the driver did not say, and a process in which torch sees no GPU used none."""
    hosts = {record.process: record.data.get("host", {}) for record in journal.of_type("host")}
    found: dict[Process, Mapping[str, Any]] = {}
    for record in journal.of_type("lease"):
        gpu = record.data["gpu"]
        seen = hosts.get(record.process, {}).get("gpus", [{}])
        if seen:
            found[record.process] = {
                "index": gpu["index"],
                "name": gpu["name"] or seen[0].get("name", ""),
                "uuid": gpu["uuid"] or seen[0].get("uuid", ""),
                "alone": record.data["alone"],
                "in_use_mib": record.data.get("in_use_mib"),
            }
    return found


def gpu_text(gpu: Mapping[str, Any]) -> str:
    """``GPU 0 (NVIDIA H200), alone, 4 MiB in use before``; empty without a GPU."""
    if not gpu:
        return ""
    name = f" ({gpu['name']})" if gpu["name"] else ""
    used = "" if gpu.get("in_use_mib") is None else f", {gpu['in_use_mib']} MiB in use before"
    return f"GPU {gpu['index']}{name}{', alone' if gpu['alone'] else ''}{used}"


def _outcomes(
    plan: RunPlan, journal: Journal, ending: Ending, machine: _Machine
) -> tuple[Mapping[str, list[Outcome]], list[str]]:
    """Pair starts with ends, process by process; what stays open died there."""
    cells = plan.by_id
    outcomes: dict[str, list[Outcome]] = {cell.id: [] for cell in plan.cells}
    faults: list[str] = []
    opened: dict[Process, Record] = {}
    for record in journal.of_type("start", "end"):
        if record.cell_id not in cells:
            faults.append(f"{record.source}: {record.type} of a cell that is not in the plan: {record.cell_id}")
            continue
        before = opened.pop(record.process, None)
        is_its_end = before is not None and _same_run(before, record)
        if before is not None and not is_its_end:
            outcomes[before.cell_id].append(_without_result(before, cells[before.cell_id], machine))
        if record.type == "start":
            opened[record.process] = record
        else:
            began = before.time if before is not None and is_its_end else record.time
            seconds = round(record.time - began, 3)
            outcome = Outcome(record.attempt, began, record.result, record.process, seconds, is_its_end)
            outcomes[record.cell_id].append(outcome)
    for record in opened.values():
        cell = cells[record.cell_id]
        outcomes[cell.id].append(_died(record, cell, journal, ending, machine))
    return outcomes, faults


def _same_run(start: Record, record: Record) -> bool:
    return record.type == "end" and (start.cell_id, start.attempt) == (record.cell_id, record.attempt)


def _without_result(start: Record, cell: Cell, machine: _Machine) -> Outcome:
    """The process went on to another cell and said nothing of this one."""
    reason = "its process went on to the next cell without recording a result"
    result = _made(cell, Verdict.ERROR, Finding("run.recorded", "a result", reason), machine)
    return Outcome(start.attempt, start.time, result, start.process)


def _died(start: Record, cell: Cell, journal: Journal, ending: Ending, machine: _Machine) -> Outcome:
    broken = [str(line) for line in journal.broken if line.process == start.process]
    death = ending.deaths.get(start.process)
    if broken:
        finding = Finding("run.recorded", "a whole result", "; ".join(broken))
        result = _made(cell, Verdict.ERROR, finding, machine, detail=death.stack if death else "")
    elif death is None and ending.interrupted:
        result = _made(cell, Verdict.ERROR, Finding("run.interrupted", "the cell ends", "interrupted"), machine)
    elif death is None:
        finding = Finding("run.recorded", "a result", "its process is gone and was not examined")
        result = _made(cell, Verdict.CRASH, finding, machine)
    else:
        finding = Finding(death.check, "the cell ends with a result", death.reason, site=death.site)
        first, *more = (*_of_the_fault(start, cell, death, journal), finding)
        result = _made(cell, death.verdict, first, machine, detail=death.stack, more=more)
        if death.status is not None:
            result = dataclasses.replace(result, notes=(*result.notes, ENDED + ended_with(death.status)))
    return Outcome(start.attempt, start.time, result, start.process)


def _of_the_fault(start: Record, cell: Cell, death: Death, journal: Journal) -> Sequence[Finding]:
    """A death that its fault brought about by itself, outside of what it was to break; none for a cell without one."""
    _, faults = split_faults(cell.axes.provider.name)
    of_this = (start.process, start.cell_id, start.attempt)
    seen = {
        record.data.get("stage")
        for record in journal.of_type("fault")
        if (record.process, record.data.get("id"), record.attempt) == of_this
    }
    if not faults or (stages.APPLIED in seen and stages.JUDGED not in seen):
        return ()
    check = UNMENDED if stages.JUDGED in seen else RAISED
    when = "after its cell was judged" if stages.JUDGED in seen else "before its apply had yielded"
    told = f"fault {'+'.join(faults)}: the process ended {when}: {death.reason}"
    return (Finding(check, WANTED, told, site=death.site),)


def _not_run(cell: Cell, ending: Ending) -> CellResult:
    machine = _Machine("host", {}, datetime.date.min)
    if ending.interrupted:
        return _made(cell, Verdict.ERROR, Finding("run.not_run", "a result", "not run: interrupted"), machine)
    if ending.stopped_by_maxfail:
        return dataclasses.replace(
            _made(cell, Verdict.SKIP, Finding("run.not_run", "a result", ""), machine),
            reason="not run: stopped by -x/--maxfail",
            findings=(),
            signature="",
        )
    return _made(cell, Verdict.ERROR, Finding("run.not_run", "a result", f"not run: {ending.why_not_run}"), machine)


def _concluded(cell: Cell, outcomes: Sequence[Outcome], machine: _Machine) -> CellResult:
    """One result from everything that was seen of a cell, all attempts recorded."""
    outcomes = sorted(outcomes, key=lambda outcome: (outcome.attempt, outcome.at))
    first, second = ([o for o in outcomes if (o.attempt == 1) is is_first] for is_first in (True, False))
    if len(first) == 1 and first[0].was_started and first[0].result.verdict in RETRIED and second:
        retry = machine.gpus.get(second[-1].process, {})
        result = _after_retry(cell, first[0].result, _one_attempt(cell, second, machine), retry, machine)
    else:
        # A second attempt after anything else was nobody's decision: then all outcomes count alike.
        result = _one_attempt(cell, outcomes, machine)
    gpus = [machine.gpus.get(outcome.process, {}) for outcome in outcomes]
    history = tuple(
        Attempt(o.result.verdict, o.result.reason, o.process.worker, o.seconds, gpu_text(gpu))
        for o, gpu in zip(outcomes, gpus, strict=True)
    )
    shown = {key: gpus[-1][key] for key in GPU_FIELDS} if gpus[-1] else {}
    return dataclasses.replace(result, attempts=history, worker=outcomes[-1].process.worker, gpu=shown)


def _one_attempt(cell: Cell, outcomes: Sequence[Outcome], machine: _Machine) -> CellResult:
    if len(outcomes) == 1 and outcomes[0].was_started:
        return outcomes[0].result
    if len(outcomes) == 1:
        finding = Finding(
            "run.recorded", "a start before the result", f"{outcomes[0].result.verdict.value} without one"
        )
        return _made(cell, Verdict.ERROR, finding, machine)
    verdicts = [outcome.result.verdict.value for outcome in outcomes]
    detail = "\n\n".join(o.result.detail for o in outcomes if o.result.detail)
    if len(set(verdicts)) > 1:
        finding = Finding("run.flaky", "one verdict", " then ".join(verdicts), "without a recorded retry")
        return _made(cell, Verdict.FLAKY, finding, machine, detail=detail)
    finding = Finding("run.reported_once", "one result", f"reported {len(verdicts)} times ({verdicts[0]})")
    return _made(cell, Verdict.ERROR, finding, machine, detail=detail)


def _after_retry(
    cell: Cell, first: CellResult, second: CellResult, gpu: Mapping[str, Any], machine: _Machine
) -> CellResult:
    # No other cell of this run was running; other runs are kept away from a GPU by an exclusive lease only.
    beside = bool(gpu) and not gpu["alone"]
    how = "in a fresh process beside other runs" if beside else "alone in a fresh process"
    note = f"retried {how} after {first.verdict.value}: {first.reason}" + (f"; on {gpu_text(gpu)}" if gpu else "")
    if first.verdict is Verdict.OOM and not second.verdict.is_red:
        got = f"out of memory beside other cells, {second.verdict.value} {'later' if beside else 'alone'}"
        finding = Finding("run.flaky", "the same verdict alone and beside others", got)
        second = dataclasses.replace(
            _made(cell, Verdict.FLAKY, finding, machine, detail=first.detail), evidence=second.evidence
        )
    return dataclasses.replace(second, notes=(*second.notes, note))


def _made(
    cell: Cell,
    verdict: Verdict,
    finding: Finding,
    machine: _Machine,
    *,
    detail: str = "",
    more: Sequence[Finding] = (),
) -> CellResult:
    """A result that no worker wrote. Waivers count here as they do in a worker."""
    arch = machine.arch if cell.axes.arch == "host" else cell.axes.arch
    waivers = cell.expect.waivers if machine.versions else ()
    waived = apply_waivers(
        verdict, waivers, arch, machine.versions, machine.today, {finding.check, *(one.check for one in more)}
    )
    findings = (*waived.findings, finding, *more)
    return CellResult(
        id=cell.id,
        axes=axes_dict(cell.axes),
        arch=arch,
        provider=cell.axes.provider.label,
        case=cell.axes.case,
        verdict=waived.verdict,
        reason=finding.got,
        signature=signature_of(waived.verdict, findings, finding.got),
        evidence=Evidence.NONE,
        findings=findings,
        notes=waived.notes,
        detail=detail,
        gates=waived.gates,
    )
