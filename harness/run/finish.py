"""The end of a run, the same for the front and for plain pytest: exit code, run.json, reports, their final place."""

from __future__ import annotations

import datetime
import hashlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import exit_codes
from harness.audit import audit
from harness.report import RunInfo, exit_code, require_findings, write_reports
from harness.report.baseline import BaselineReport, judge_baseline
from harness.report.run_info import audited
from harness.report.store import write_run
from harness.run.journal import Journal, read_journal
from harness.run.plan_file import RunPlan
from harness.run.reconcile import Reconciled, gpus_of
from harness.run.run_dir import RunDir, publish, shown
from harness.run.supervise import Supervisor
from harness.types import Evidence, Verdict

INTERNAL_ERROR = exit_codes.INTERNAL
Last = Callable[[RunInfo], None]
STUCK = "cells are left that no process could start"


@dataclass(frozen=True)
class Finished:
    """A run whose reports stand. ``directory`` is where; ``warnings`` are for the user's eyes only."""

    info: RunInfo
    directory: Path
    warnings: Sequence[str] = ()


def finish(
    run: RunDir,
    plan: RunPlan,
    state: Reconciled,
    *,
    rounds: int,
    interrupted: bool = False,
    stuck: bool = False,
    last: Last = lambda info: None,
) -> Finished:
    """Write every report, audit what was written, and move the directory to its final name.

    Args:
        last: called before that move, once all else is written; what it writes stands there from the first moment.

    Raises:
        OSError: that can't be done; what was recorded stays under the temporary name.
    """
    journal = read_journal(run.journal)
    info = describe_run(plan, state, journal, rounds=rounds, interrupted=interrupted, stuck=stuck)
    write_reports(run.work, info, state.results)
    info = audited(info, audit(run.work))
    if info.audit is not None and info.audit.findings:
        write_reports(run.work, info, state.results)
    else:
        write_run(run.work, info, state.results)
    last(info)
    warnings = publish(run)
    return Finished(info, shown(run.final), warnings)


def finish_supervised(supervisor: Supervisor, state: Reconciled, last: Last = lambda info: None) -> Finished:
    """:func:`finish` for a run whose rounds a supervisor started. Raises OSError as it does."""
    return finish(
        supervisor.run,
        supervisor.plan,
        state,
        rounds=len(supervisor.ends),
        interrupted=supervisor.stopped,
        stuck=supervisor.stuck,
        last=last,
    )


def describe_run(
    plan: RunPlan,
    state: Reconciled,
    journal: Journal,
    *,
    rounds: int,
    interrupted: bool,
    stuck: bool,
) -> RunInfo:
    """Everything that run.json says, exit code included."""
    ended = datetime.datetime.now().astimezone()
    baseline = judged_baseline(plan, state)
    code, reason = decide(plan, state, interrupted=interrupted, stuck=stuck, baseline=baseline)
    host = _host(journal)
    commit, dirty = git_state(Path.cwd())
    notes = [*plan.notes, *state.faults, *map(str, journal.broken)]
    if len(plan.cells) < plan.planned:
        notes.append(f"{len(plan.cells)} of {plan.planned} planned cells were selected")
    if state.left_out:
        notes.append(f"{len(state.left_out)} cells were not run: stopped by -x/--maxfail")
    return RunInfo(
        run_id=plan.run_id,
        matrix=plan.matrix,
        name=plan.name,
        require=plan.require,
        started=plan.started,
        finished=ended.isoformat(timespec="milliseconds"),
        seconds=_seconds(plan.started, ended),
        command=plan.command,
        plan_digest=digest(plan),
        planned=plan.planned,
        selected=len(plan.cells),
        workers=plan.workers,
        versions={name: str(version) for name, version in host.get("versions", {}).items()},
        host={name: _text(value) for name, value in _machine(plan, host, journal).items() if name != "versions"},
        env=plan.env,
        git_commit=commit,
        git_dirty=dirty,
        exit_code=code,
        exit_reason=reason,
        rounds=rounds,
        notes=tuple(notes),
        baseline=baseline,
    )


def judged_baseline(plan: RunPlan, state: Reconciled) -> BaselineReport | None:
    """What the plan's baseline says of the run; None without one."""
    if plan.baseline is None:
        return None
    return judge_baseline(plan.baseline, state.results, complete=is_complete(plan))


def is_complete(plan: RunPlan) -> bool:
    """True when every planned cell was selected."""
    return len(plan.cells) == plan.planned


def decide(
    plan: RunPlan, state: Reconciled, *, interrupted: bool, stuck: bool, baseline: BaselineReport | None = None
) -> tuple[int, str]:
    """Exit code and its meaning in words."""
    unmet = require_findings(plan.require, state.results)
    code, reason = exit_code(
        state.results,
        unmet,
        interrupted=interrupted,
        internal=bool(state.faults) or (stuck and not interrupted),
        baseline=baseline,
    )
    if code == INTERNAL_ERROR:
        reason = f"{reason}: {state.faults[0] if state.faults else STUCK}"
    return code, reason


def _seconds(started: str, ended: datetime.datetime) -> float:
    return round((ended - datetime.datetime.fromisoformat(started)).total_seconds(), 3) if started else 0.0


def judged_require(require: str, picked_by: Sequence[str], count: int, planned: int) -> tuple[str, list[str]]:
    """The evidence that a run must reach, and a note where that is less than its matrix asks for.

    ``require`` is a demand on a whole plan. Cells picked one by one can't meet it (a documented refusal executes
    nothing), nor can one shard of several; all of them together must.
    """
    if not picked_by or require == Evidence.TRACED.value:
        return require, []
    why = f"{count} of {planned} cells were picked by {', '.join(picked_by)}"
    return Evidence.TRACED.value, [f"require {require} is not judged: {why}"]


def digest(plan: RunPlan) -> str:
    """Identifies the selected ids in the plan's order."""
    return hashlib.sha256("\n".join(cell.id for cell in plan.cells).encode()).hexdigest()[:16]


def git_state(directory: Path) -> tuple[str, bool]:
    """(commit, has uncommitted changes) of the checkout around ``directory``; ("", False) where there is none."""
    commit = _git(directory, "rev-parse", "HEAD")
    return commit, bool(commit and _git(directory, "status", "--porcelain", "--untracked-files=no"))


def _git(directory: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _host(journal: Journal) -> Mapping[str, Any]:
    found = next(journal.of_type("host"), None)
    host: Mapping[str, Any] = found.data.get("host", {}) if found else {}
    return host


def _machine(plan: RunPlan, host: Mapping[str, Any], journal: Journal) -> Mapping[str, Any]:
    """``host`` as the run saw it: every GPU that it could lease, where one process saw one; who ran where; peaks.

    ``worker_peak_mib``: the most memory that one process held while it ran cells. ``worker_gpu_peak_mib``: the most
    that torch's allocator held on a GPU, cells that ran out of memory left out; the CUDA context comes on top.
    """
    ends = list(journal.of_type("end"))
    rss = max((int(record.data.get("rss_mib", 0)) for record in ends), default=0)
    within = [record for record in ends if record.result.verdict is not Verdict.OOM]
    reserved = max((int(record.data.get("gpu_mib", 0)) for record in within), default=0)
    facts: dict[str, Any] = {**host}
    if host.get("gpus") and plan.gpus:
        facts["gpus"] = [
            {"index": gpu.index, "name": gpu.name, "memory_mib": gpu.total_mib, "uuid": gpu.uuid} for gpu in plan.gpus
        ]
        facts["gpu_workers"] = _workers_by_gpu(journal)
    return facts | {name: peak for name, peak in (("worker_peak_mib", rss), ("worker_gpu_peak_mib", reserved)) if peak}


def _workers_by_gpu(journal: Journal) -> list[str]:
    """``GPU 0: gw0 gw2``, replaced workers included."""
    workers: dict[int, dict[str, None]] = {}
    for process, gpu in gpus_of(journal).items():
        workers.setdefault(gpu["index"], {})[process.worker] = None
    return [f"GPU {index}: {' '.join(names)}" for index, names in sorted(workers.items())]


def _text(value: Any) -> str:
    """One line for run.json, whose host values are text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(map(_text, value))
    return str(value)
