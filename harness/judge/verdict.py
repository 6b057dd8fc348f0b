"""From observations to one verdict: every check that applies, then errors of other kinds, then waivers."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.judge import case_checks, compile_checks, fp8_checks, memory_check, state_checks
from harness.judge.check import EVERY, Check, Enabled, Judging
from harness.judge.numerics import CHECKS as NUMERIC_CHECKS
from harness.judge.numerics import NumericsVerdict, judge_numerics
from harness.judge.outcome import poisons_worker, verdict_of_error
from harness.judge.support_table import CHECK as SUPPORT_CHECK
from harness.judge.support_table import DEFAULT_CHECK, judge_default, judge_support
from harness.judge.traced import CHECK as TRACED_CHECK
from harness.judge.traced import judge_traced
from harness.judge.waivers import apply_waivers
from harness.judge.wrong_eager import CHECK as WRONG_EAGER_CHECK
from harness.types import RETIRE_WORKER, Evidence, Finding, Verdict

# Order is that of blame: what explains the others comes first, and the first finding names the group of reds.
CHECKS: tuple[Check, ...] = (
    *state_checks.CHECKS,
    *compile_checks.CHECKS,
    *fp8_checks.CHECKS,
    *case_checks.CHECKS,
    *memory_check.CHECKS,
)

_NUMERIC = (WRONG_EAGER_CHECK, *NUMERIC_CHECKS)
# Every name that a finding of :func:`judge_cell` may have, in the order in which they are looked at.
CHECK_NAMES: tuple[str, ...] = tuple(
    dict.fromkeys([*(check.name for check in CHECKS), TRACED_CHECK, SUPPORT_CHECK, DEFAULT_CHECK, *_NUMERIC])
)


@dataclass(frozen=True)
class Judged:
    """The judge's word on one cell."""

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    checks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    gates: bool = True
    numerics: Mapping[str, Any] = field(default_factory=dict)


def run_checks(
    judging: Judging, checks: Iterable[Check] = CHECKS, enabled: Enabled = EVERY
) -> tuple[list[Finding], list[str]]:
    """Findings of every enabled check that applies, and the names of those that did."""
    findings: list[Finding] = []
    applied: list[str] = []
    for check in checks:
        if check.name in enabled and check.applies(judging):
            applied.append(check.name)
            findings += check.run(judging)
    return findings, applied


def judge_cell(
    judging: Judging,
    *,
    cuda: tuple[int, int] | None,
    versions: Mapping[str, str],
    today: datetime.date,
    enabled: Enabled = EVERY,
) -> Judged:
    """Judge one cell. ``versions`` by distribution name; ``today`` decides whether waivers have expired.

    Raises:
        ValueError: ``enabled`` names no check of the judge: a green of nothing looked at.
    """
    unknown = enabled.names - set(CHECK_NAMES)
    if unknown:
        raise ValueError(f"no check of the judge: {', '.join(sorted(unknown))}")
    findings, applied = run_checks(judging, enabled=enabled)
    note = ""
    if TRACED_CHECK in enabled and judging.compiled and judging.obs.traced:
        found, note = judge_traced(judging.obs, judging.axes)
        findings += found
        applied += [] if note else [TRACED_CHECK]
    if SUPPORT_CHECK in enabled:
        findings += support_findings(judging, cuda)
        applied.append(SUPPORT_CHECK)
    claimed = judging.obs.told.get("default_recipe")
    if claimed is not None and DEFAULT_CHECK in enabled:
        findings += judge_default(claimed, judging.obs.arch, cuda)
        applied.append(DEFAULT_CHECK)
    numerics = judge_numerics(judging.obs, judging.axes, enabled)
    numerics = replace(numerics, notes=(*filter(None, [note]), *numerics.notes))
    findings += numerics.findings
    applied += numerics.checks
    return _conclude(judging, findings, applied, numerics, versions, today)


def support_findings(judging: Judging, cuda: tuple[int, int] | None) -> Sequence[Finding]:
    """The provider's belief about each recipe against the judge's own table."""
    findings: list[Finding] = []
    specs = [judging.axes.recipe] + ([judging.cell.inner] if judging.cell.inner else [])
    for spec in specs:
        belief = judging.obs.support.get(spec.label)
        if belief is not None:
            fp8_format = str(spec.as_dict().get("fp8_format", ""))
            findings += judge_support(spec.name, judging.obs.arch, cuda, belief[0], fp8_format=fp8_format)
    return findings


def _conclude(
    judging: Judging,
    findings: list[Finding],
    applied: list[str],
    numerics: NumericsVerdict,
    versions: Mapping[str, str],
    today: datetime.date,
) -> Judged:
    obs = judging.obs
    verdict = Verdict.FAIL if findings else Verdict.PASS
    if judging.raises is None and obs.evidence is not Evidence.NEGATIVE:
        special = [kind for kind in map(verdict_of_error, obs.errors) if kind is not None]
        verdict = special[0] if special else verdict
        # What a user's own target returned is looked at as late as in its first step.
        wrong_target = any(error.type == "TargetError" for error in obs.errors)
        # A program that was built once can't be built again under what the product has left: that is the product's.
        spoiled = obs.expects is not None and bool(obs.state_diffs)
        unbuilt = not spoiled and any(error.phase == "build" for error in obs.errors)
        if not special and (wrong_target or unbuilt):
            verdict = Verdict.ERROR
    failed = {finding.check for finding in findings}
    waived = apply_waivers(verdict, judging.cell.expect.waivers, obs.arch, versions, today, failed)
    findings = [*waived.findings, *findings]
    notes = [*obs.notes, *filter(None, [fp8_checks.observed(judging)]), *numerics.notes, *waived.notes]
    if any(poisons_worker(error) for error in obs.errors):
        notes.append(RETIRE_WORKER)
    return Judged(
        verdict=waived.verdict,
        reason=str(findings[0]) if findings else _pass_reason(judging),
        findings=tuple(findings),
        checks=tuple(dict.fromkeys(applied)),
        notes=tuple(notes),
        gates=waived.gates,
        numerics=numerics.summary,
    )


def _pass_reason(judging: Judging) -> str:
    if judging.obs.evidence is Evidence.NEGATIVE:
        return "refused on entry as documented"
    return "refused under compile as documented" if judging.raises else ""
