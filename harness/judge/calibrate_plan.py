"""Which cells a calibration runs, and which of those that were asked for it can't run here, with the reason."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cases import CASES
from harness.judge.calibrate_measure import NOT_COMPILED, Job, provider_of
from harness.judge.calibrate_records import Skipped
from harness.plan.ids import cell_id, inner_of
from harness.providers.protocol import Provider, ProviderUnavailable
from harness.run.resolve import resolve
from harness.types import BACKENDS, Axes, Cell, Evidence, Spec

# Documented by both providers (NVIDIA/TransformerEngine#2759): there is no compiled run to measure.
REFUSED_UNDER_COMPILE = "delayed_scaling"
REFUSAL = "refused under torch.compile, as documented: its eager runs are calibrated"


@dataclass(frozen=True)
class Plan:
    """What to run: every combination of these. ``arch`` is resolved; ``backends`` may hold "none" (eager run alone)."""

    case: str
    providers: Sequence[str]
    recipes: Sequence[str]
    nestings: Sequence[str]
    data: Sequence[str]
    seeds: Sequence[int]
    shapes: Sequence[tuple[int, int, int]]
    dtypes: Sequence[str]
    backends: Sequence[str]
    arch: str

    def axes(self, provider: str) -> Iterator[tuple[str, Axes]]:
        """Backend and axis values of every combination that the case has a program for."""
        entry = CASES[self.case]
        for recipe, backend, dtype, shape, nesting, variant, data, seed in itertools.product(
            [name for name in self.recipes if name in entry.recipes],
            self.backends,
            self.dtypes,
            self.shapes,
            [nesting for nesting in self.nestings if nesting in entry.nestings],
            entry.variants or ("",),
            self.data,
            self.seeds,
        ):
            yield (
                backend,
                Axes(
                    case=self.case,
                    provider=Spec(provider),
                    recipe=Spec(recipe),
                    arch=self.arch,
                    nesting=nesting,
                    variant=variant,
                    backend=backend if backend in BACKENDS else "eager",
                    dtype=dtype,
                    shape=shape,
                    data=data,
                    seed=seed,
                ),
            )

    def jobs(self) -> tuple[list[Job], list[Skipped]]:
        """What can be measured here, in order, and what can't."""
        jobs: list[Job] = []
        skipped: Counter[tuple[str, str, str, str]] = Counter()
        for name in self.providers:
            provider = _available(name)
            for backend, axes in self.axes(name):
                if isinstance(provider, str):
                    skipped[name, "every recipe", "every run", provider] += 1
                    continue
                job = _job(provider, axes, backend)
                if isinstance(job, str):
                    skipped[name, axes.recipe.label, _words(backend), job] += 1
                else:
                    jobs.append(job)
        return jobs, [Skipped(*key, cells) for key, cells in skipped.items()]


def _words(backend: str) -> str:
    return "eager runs" if backend == NOT_COMPILED else f"compiled runs, {backend}"


def _available(name: str) -> Provider | str:
    """The provider, or why it can't be used."""
    try:
        return provider_of(name)
    except ProviderUnavailable as unavailable:
        return unavailable.reason


def _job(provider: Provider, axes: Axes, backend: str) -> Job | str:
    """The cell as a job, or why nothing would execute."""
    compiled = backend != NOT_COMPILED
    if compiled and axes.recipe.name == REFUSED_UNDER_COMPILE:
        return REFUSAL
    resolved = resolve(Cell(cell_id(axes), axes, inner_of(axes)), provider, axes.arch)
    if resolved.evidence in (Evidence.NATIVE, Evidence.EMULATED):
        return Job(axes, resolved.evidence, compiled)
    lacking = {label: support.reason for label, support in resolved.support.items() if support.level == "unsupported"}
    if axes.recipe.label in lacking:
        return lacking[axes.recipe.label] or "not supported here"
    return "; ".join(f"inner recipe {label}: {reason}" for label, reason in lacking.items()) or "nothing executes here"
