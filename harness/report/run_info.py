"""What is known about a whole run: how it was started, on what, how it ended, and its totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from harness.audit import AuditReport
from harness.report.baseline import BaselineReport
from harness.report.evidence import refused, unjudged
from harness.report.require import INTERNAL_ERROR, MEANINGS
from harness.types import SCHEMA_VERSION, CellResult, Evidence, Verdict

BLAMES = ("none", "product", "infra", "run")


@dataclass(frozen=True)
class RunInfo:
    """One run of one matrix, as its front saw it. Everything has a default but what names the run.

    ``started`` and ``finished`` are ISO 8601 times with an offset, ``seconds`` is wall time. ``planned`` is the size of
    the full plan, ``selected`` what was left after -k, --select, --shard and --provider: the number of results that a
    complete run reports. ``plan_digest`` identifies the ordered list of selected ids. ``versions`` has python, torch,
    cuda, te, torchao, triton, pytest...; ``host`` has arch (resolved), cpu, gpus, driver, threads; ``env`` the
    environment variables that matter and are set. ``rounds`` counts how often processes were started for retries
    (1: once, no retry). ``baseline`` is None where the run was not held against one, ``audit`` where nobody audited it.
    """

    run_id: str
    matrix: str  # path as the user gave it
    name: str = ""  # the matrix's own name
    require: str = "emulated"  # native | emulated | traced
    started: str = ""
    finished: str = ""
    seconds: float = 0.0
    command: tuple[str, ...] = ()
    plan_digest: str = ""
    planned: int = 0
    selected: int = 0
    workers: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    git_commit: str = ""
    git_dirty: bool = False
    exit_code: int = 0
    exit_reason: str = ""
    rounds: int = 1
    notes: tuple[str, ...] = ()
    baseline: BaselineReport | None = None
    audit: AuditReport | None = None


@dataclass(frozen=True)
class Totals:
    """Counts of one run. Every verdict and every level of evidence is listed, at zero too, so that a script can index.

    ``passed_by_evidence`` counts verdict ``pass`` only. Among these, ``refused`` passed by a documented refusal under
    compile, and ``unjudged`` claim execution although their FP8 arithmetic was not judged.
    """

    results: int
    by_verdict: Mapping[str, int]
    by_evidence: Mapping[str, int]
    passed_by_evidence: Mapping[str, int]
    gating_reds: int  # red cells that decide the exit code
    quarantined_reds: int  # red cells that a quarantine keeps from deciding it
    refused: int
    unjudged: int
    retried: int  # cells with more than one attempt


@dataclass(frozen=True)
class RunRecord(RunInfo):
    """run.json (docs/schemas/run.schema.json): the run, its totals and who is to blame.

    ``blame``: ``product`` when a cell is red because of the program or library under test, ``infra`` when every red
    that gates is the machine's, ``run`` when no cell is red and the run is (requirement unmet, worse than its baseline,
    interrupted, internal error, nothing ran) or when its audit found something, ``none`` when all is as expected.
    """

    totals: Totals = Totals(0, {}, {}, {}, 0, 0, 0, 0, 0)
    blame: str = "none"
    schema_version: int = SCHEMA_VERSION


def totals(results: Iterable[CellResult]) -> Totals:
    """Totals by verdict and by evidence."""
    listed = list(results)
    reds = [result for result in listed if result.verdict.is_red]
    passed = [result for result in listed if result.verdict is Verdict.PASS]
    return Totals(
        results=len(listed),
        by_verdict={verdict.value: sum(r.verdict is verdict for r in listed) for verdict in Verdict},
        by_evidence={evidence.value: sum(r.evidence is evidence for r in listed) for evidence in Evidence},
        passed_by_evidence={evidence.value: sum(r.evidence is evidence for r in passed) for evidence in Evidence},
        gating_reds=sum(result.gates for result in reds),
        quarantined_reds=sum(not result.gates for result in reds),
        refused=sum(map(refused, listed)),
        unjudged=sum(map(unjudged, listed)),
        retried=sum(len(result.attempts) > 1 for result in listed),
    )


def audited(run: RunInfo, report: AuditReport) -> RunInfo:
    """``run`` with its audit; a finding makes it an internal error, whatever its exit code was."""
    if not report.findings:
        return replace(run, audit=report)
    reason = f"{MEANINGS[INTERNAL_ERROR]}: {report.findings[0]}"
    return replace(run, audit=report, exit_code=INTERNAL_ERROR, exit_reason=reason)


def blame(run: RunInfo, results: Sequence[CellResult]) -> str:
    """Who is to blame for this run's exit code: one of :data:`BLAMES`."""
    if run.audit is not None and run.audit.findings:
        return "run"  # then the results are no word about the product
    reds = [result for result in results if result.verdict.is_red and result.gates]
    if reds:
        return "infra" if all(result.verdict is Verdict.INFRA for result in reds) else "product"
    return "run" if run.exit_code else "none"


def run_record(run: RunInfo, results: Sequence[CellResult]) -> RunRecord:
    """The content of run.json for ``run``."""
    own = {f.name: getattr(run, f.name) for f in fields(RunInfo)}
    return RunRecord(**own, totals=totals(results), blame=blame(run, results))
