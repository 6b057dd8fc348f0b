"""One good run: observed, judged, and written down with every bound that it met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from cases import CASES
from harness.judge.calibrate_records import Measured, Met
from harness.judge.numerics import NumericsVerdict, judge_bench
from harness.judge.numerics_bench import Bench, Tally
from harness.observe.run import Batches, build_program, parameters_of, run_steps
from harness.observe.session import observe_cell
from harness.observe.subject import as_arch
from harness.observe.types import Observations
from harness.plan.ids import cell_id, inner_of
from harness.program import Case, CaseContext, Program
from harness.providers import PROVIDERS
from harness.providers.protocol import ProgramProvider, Provider
from harness.registry import load
from harness.run.host import device_for
from harness.types import Axes, Evidence, Expectation

NOT_COMPILED = "none"  # in place of a backend: the eager run alone


@dataclass(frozen=True)
class Job:
    """One cell to measure. ``compiled`` False: only its eager run."""

    axes: Axes
    evidence: Evidence
    compiled: bool = False

    @property
    def backend(self) -> str:
        return self.axes.backend if self.compiled else NOT_COMPILED


def observe_eager(provider: Provider, axes: Axes, device: torch.device) -> Observations:
    """One eager run of a cell's program under the tap, without the rest of an observation."""
    build = _builder(provider, axes, device)
    provider.reset()
    program = build_program(build, provider, axes)
    batches = Batches(program, axes, kept=program.expects.steps)
    parameters = parameters_of(program)
    with provider.tap() as records:
        run = run_steps(program, batches, records, program.forward, lambda phase: None, ("eager", "eager"))
    return Observations(
        evidence=Evidence.EMULATED,
        arch=axes.arch,
        expects=program.expects,
        rebuild=lambda on: build_program(build, on, axes),
        parameters=parameters,
        batches=batches.drawn(),
        eager=run,
    )


class _Builder:
    """The cell's program on whichever provider asks: the judged one on its device, the oracle in float64 on the CPU."""

    def __init__(self, own: Provider, axes: Axes, device: torch.device) -> None:
        self.case: Case = load(CASES[axes.case].path)
        self.own, self.axes, self.device = own, axes, device

    def __call__(self, on: ProgramProvider) -> Program:
        own = on is self.own
        dtype = getattr(torch, self.axes.dtype) if own else torch.float64
        device = self.device if own else torch.device("cpu")
        return self.case.build(CaseContext(on, self.axes, inner_of(self.axes), device, dtype))


def _builder(own: Provider, axes: Axes, device: torch.device) -> _Builder:
    return _Builder(own, axes, device)


def observe(provider: Provider, job: Job) -> Observations:
    """The job's run: eager alone, or everything that a cell of a matrix observes."""
    axes, device = job.axes, device_for(job.axes.arch)
    if not job.compiled:
        with as_arch(provider, axes.arch):
            return observe_eager(provider, axes, device)
    build = _builder(provider, axes, device)
    return observe_cell(build, provider, axes, job.evidence, axes.arch, Expectation(), device)


_loaded: dict[str, Provider] = {}


def provider_of(name: str) -> Provider:
    """The provider of that name, one in each process.

    Raises:
        ProviderUnavailable: it can't be used here.
    """
    if name not in _loaded:
        _loaded[name] = load(PROVIDERS[name])()
    return _loaded[name]


def measure(job: Job) -> Measured:
    """Observe and judge one cell. What it raises is a finding: a good run raises nothing."""
    try:
        obs = observe(provider_of(job.axes.provider.name), job)
        bench = Bench(obs, job.axes)
        verdict = judge_bench(bench)
    except Exception as error:  # one cell must not end the others, and must not pass
        return _measured(job, NumericsVerdict(), {}, (f"{type(error).__name__}: {error}",))
    errors = tuple(f"{seen.type} in phase {seen.phase}: {seen.message}" for seen in obs.errors)
    if job.compiled and obs.compiled is None and not errors:
        errors = ("the compiled run is missing",)
    return _measured(job, verdict, bench.tallies, errors)


def _measured(
    job: Job, verdict: NumericsVerdict, tallies: Mapping[tuple[str, str], Tally], errors: tuple[str, ...]
) -> Measured:
    axes = job.axes
    return Measured(
        cell=cell_id(axes),
        provider=axes.provider.label,
        recipe=axes.recipe.label,
        nesting=axes.nesting,
        data=axes.data,
        seed=axes.seed,
        shape=",".join(map(str, axes.shape)),
        dtype=axes.dtype,
        backend=job.backend,
        evidence=job.evidence.value,
        judged=bool(verdict.checks),
        findings=errors + tuple(map(str, verdict.findings)),
        notes=verdict.notes,
        met=tuple(met_from(tallies)),
    )


def met_from(tallies: Mapping[tuple[str, str], Tally]) -> list[Met]:
    """Records of what a judged bench compared."""
    return [
        Met(check, part, tally.count, *((tally.worst.ratio, tally.worst.where) if tally.worst else (None, "")))
        for (check, part), tally in tallies.items()
    ]
