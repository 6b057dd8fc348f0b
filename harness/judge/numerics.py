"""The numeric verdict on one cell: every numeric check of docs/judging.md, in an order in which NaN can't hide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.judge import wrong_eager
from harness.judge.check import EVERY, EXECUTED, Enabled
from harness.judge.compare import shorten, sqnr, within
from harness.judge.numerics_bare import BARE_CHECKS, DRAWN_DISTANCE
from harness.judge.numerics_bench import Bench
from harness.judge.numerics_program import (
    BIT_EQUAL_BACKENDS,
    check_alpha,
    check_eager,
    check_finite,
    check_later,
    check_nonzero,
    check_program,
    check_storage,
    undecided,
)
from harness.judge.numerics_tap import check_codes, check_kernel, check_scales, check_tap
from harness.judge.numerics_views import tensors_of
from harness.judge.oracle_provider import OracleUnsupported
from harness.judge.oracle_run import foreign_layers
from harness.judge.wrong_eager import judge_wrong_eager
from harness.observe.errors import describe_error
from harness.observe.types import Observations
from harness.program import NoOracle
from harness.types import Axes, Finding

NumericCheck = Callable[[Bench], list[Finding]]

# Finiteness first: whatever follows may assume that a NaN has been reported. Then what explains most.
CHECKS: Mapping[str, NumericCheck] = {
    "numerics.finite": check_finite,
    "numerics.nonzero": check_nonzero,
    "numerics.storage": check_storage,
    "numerics.scales": check_scales,
    "numerics.codes": check_codes,
    "numerics.kernel": check_kernel,
    "numerics.tap": check_tap,
    "numerics.eager": check_eager,
    "numerics.later": check_later,
    "numerics.program": check_program,
    "numerics.alpha": check_alpha,
}


@dataclass(frozen=True)
class NumericsVerdict:
    """What the numbers say. ``checks``: names of the checks that were applied; ``summary`` holds JSON values."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[str, ...] = ()


def judge_numerics(obs: Observations, axes: Axes, enabled: Enabled = EVERY) -> NumericsVerdict:
    """Judge output and gradients of one cell's runs, and the FP8 products they came from.

    Of a program whose eager code is known to be wrong only the compiled run is judged like this: what compares it with
    eager code stays out, but for ``numerics.later``, beside which the program's ``sound`` forward ran.

    A cell of which nothing executed gets a note and no findings. One whose program the oracle can't run is held against
    eager alone; the absence of the checks of FP8 arithmetic in the result keeps it from counting as judged.
    """
    bench = bench_of(obs, axes)
    verdict = NumericsVerdict(notes=("no compiled run: numerics judged of eager alone",))
    if bench is not None:
        verdict = judge_bench(bench, enabled)
    if obs.expects is None or not eager_is_wrong(obs) or wrong_eager.CHECK not in enabled:
        return verdict
    findings, note = judge_wrong_eager(obs, axes, obs.expects)
    notes = (*verdict.notes, note) if note else verdict.notes
    checks = (wrong_eager.CHECK, *verdict.checks)
    return replace(verdict, findings=(*findings, *verdict.findings), notes=notes, checks=checks)


def eager_is_wrong(obs: Observations) -> bool:
    """True where numbers can be judged, and the case calls its own eager code wrong."""
    return not _not_judged(obs) and obs.expects is not None and bool(obs.expects.eager_is_wrong)


def bench_of(obs: Observations, axes: Axes) -> Bench | None:
    """What :func:`judge_numerics` looks at: both runs, or the compiled one alone; None where that one is missing."""
    if not eager_is_wrong(obs):
        return Bench(obs, axes)
    return Bench(obs, axes, runs=("compiled",)) if obs.compiled is not None else None


def judge_bench(bench: Bench, enabled: Enabled = EVERY) -> NumericsVerdict:
    """:func:`judge_numerics` on a bench, which afterwards holds what each enabled check compared."""
    reason = _not_judged(bench.raw)
    if reason:
        return NumericsVerdict(notes=(f"numerics not judged: {reason}",))
    if not any(name in enabled for name in CHECKS):
        return NumericsVerdict()
    why = _no_oracle(bench)
    if why:
        return _without_oracle(bench, why, enabled)
    findings: list[Finding] = []
    applied = [name for name in applicable(bench) if name in enabled]
    for name in applied:
        findings += shorten(CHECKS[name](bench))
    notes = [*bench.notes, *_fast_accumulation(bench)]
    if bench.nondeterministic:
        notes.append(f"nondeterministic: {', '.join(sorted(bench.nondeterministic))} differ between two eager runs")
    if "numerics.alpha" in applied and undecided(bench):
        notes.append(f"alpha undecided for {', '.join(undecided(bench))}: rounding exceeds quantisation")
    return NumericsVerdict(tuple(findings), tuple(notes), summarise(bench, applied), tuple(applied))


def _no_oracle(bench: Bench) -> str:
    """Why the oracle can't run the program, or runs another one than was observed; empty once it has run.

    A user's own program may do there whatever it likes. What it raises, and what only it can know, is nobody's fault:
    nothing is judged then. Of a library's cases every such thing is a finding, or a defect of the harness.
    """
    is_own = bool(bench.axes.target)
    if bench.raw.draws:
        return "the program draws random numbers, of which the oracle would draw others"
    try:
        bench.prepare()
    except (OracleUnsupported, NoOracle) as error:
        return str(error)
    except Exception as error:
        if not is_own:
            raise
        seen = describe_error(error, "run")
        line = seen.message.partition("\n")[0]
        return f"{bench.axes.target} raised {seen.type} on the oracle: {line}{f' at {seen.site}' if seen.site else ''}"
    foreign = [name for view in bench.views for name in foreign_layers(view.oracle, view.run)] if is_own else []
    if foreign:
        names = ", ".join(dict.fromkeys(foreign))
        return f"FP8 layers of {bench.axes.target} that ctx.provider.linear didn't make: {names}"
    return ""


def _without_oracle(bench: Bench, why: str, enabled: Enabled) -> NumericsVerdict:
    """What can be said of a program that the oracle can't run: finite, and compiled what eager is."""
    findings: list[Finding] = []
    applied = [name for name in BARE_CHECKS if name in enabled and name not in _without_runs(bench)]
    for name in applied:
        findings += shorten(BARE_CHECKS[name](bench))
    against = "against eager alone" if bench.axes.backend in BIT_EQUAL_BACKENDS else "for finite values alone"
    if bench.raw.draws and bench.axes.backend in BIT_EQUAL_BACKENDS:
        against += f", with the same draws, to within {DRAWN_DISTANCE:.0%} of each tensor's norm and not bit for bit"
    note = f"FP8 numerics not judged, there is no oracle: {why}; results were looked at {against}"
    return NumericsVerdict(tuple(findings), (note,), checks=tuple(applied))


def _without_runs(bench: Bench) -> set[str]:
    """Checks whose second side was not observed."""
    lacking = set() if bench.obs.eager and bench.obs.compiled else {"numerics.eager"}
    return lacking if bench.obs.later else {*lacking, "numerics.later"}


def _fast_accumulation(bench: Bench) -> list[str]:
    """A note on the products that have a wider bound because their kernels were asked for fast accumulation."""
    labels = [pair.product.label for pair in bench.view.pairs if pair.record.fast_accumulation]
    if not labels:
        return []
    return [f"fast accumulation: {', '.join(dict.fromkeys(labels))} (bounds of {bench.accumulator.name})"]


def _not_judged(obs: Observations) -> str:
    if obs.evidence not in EXECUTED:
        return f"evidence is {obs.evidence.value}"
    if obs.eager is None and obs.compiled is None and not obs.eager_errors:
        return "nothing ran"
    if obs.rebuild is None:
        return "the program can't be rebuilt on the oracle"
    return ""


def applicable(bench: Bench) -> Sequence[str]:
    """Names of the checks that this cell's observations allow, in order."""
    quantised = any(step.products for view in bench.views for step in view.oracle.steps)
    skipped = set()
    if not quantised:
        skipped |= {"numerics.scales", "numerics.codes", "numerics.kernel", "numerics.alpha"}
    if len(bench.views) < 2:
        skipped.add("numerics.eager")
    if not bench.obs.later:
        skipped.add("numerics.later")
    return [name for name in CHECKS if name not in skipped]


def summarise(bench: Bench, applied: Sequence[str]) -> dict[str, Any]:
    """Figures for reports: per tensor of what a user gets, and per check the largest value / bound.

    Per tensor: ``max_error`` against the oracle, its ``bound`` and their ``ratio``, where the ratio is largest;
    ``alpha`` of the whole; ``sqnr`` in dB against the unquantised program (reported, never judged).
    """
    view = bench.view
    seen, own = tensors_of(view.run.steps[-1]), tensors_of(view.oracle.steps[-1])
    projections = bench.alphas if "numerics.alpha" in applied else {}
    tensors: dict[str, Any] = {}
    for name, value in seen.items():
        if name in own and value.shape == own[name].shape:
            error = (value.to(torch.float64) - own[name]).abs()
            worst = within(error, bench.allowed(view, len(view.oracle.steps) - 1, name))
            tensors[name] = {"max_error": worst.value, "bound": worst.bound, "ratio": worst.ratio}
            if projections.get(name):
                bare = view.oracle.unquantised[name]
                whole = projections[name][0]
                tensors[name] |= {"alpha": whole.alpha, "alpha_bound": whole.bound, "sqnr": sqnr(bare, value)}
    return {
        "judged": view.name,
        "products": sum(len(step.products) for step in view.oracle.steps),
        "records": len(view.run.records),
        "tensors": tensors,
        "alphas": {f"{n} {a.label}": a.alpha for n, items in projections.items() for a in items},
        "margins": {name: {"ratio": m.ratio, "where": m.where} for name, m in bench.margins.items()},
    }
