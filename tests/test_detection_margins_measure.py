"""harness.detection.margins_measure: what caught a fault, by how much, and how near a clean cell comes."""

from __future__ import annotations

import math

import pytest
import torch

from harness.detection import margins_measure
from harness.detection.kill_measure import Job
from harness.detection.margins_measure import (
    BOUND,
    EXACT,
    Distance,
    Measure,
    distance,
    lost,
    measure,
    measures,
    nearest,
)
from harness.faults import FAULTS
from harness.judge.check import Enabled, Judging
from harness.judge.numerics import CHECKS, judge_bench
from harness.judge.numerics_bench import Bench
from harness.registry import load
from harness.types import Cell
from tests.support import judge_faults as faults
from tests.support import kills
from tests.support.judge_stub import StubProvider, axes_for, observe
from tests.support.kills import twin as near_twin

AXES = axes_for(nesting="flat", backend="aot_eager")
ALL = ("normal", "positive", "heavy_tailed")


def of(provider: StubProvider, check: str) -> Distance:
    """The distance of a faulty stub by one check alone."""
    bench = Bench(observe(AXES, provider, provider), AXES)
    findings = judge_bench(bench, Enabled(only=frozenset({check}))).findings
    empty = kills.distance("a fault", check, kind="", ratio=None, findings=tuple(map(str, findings)))
    return distance(empty, bench)


def test_a_bound_that_was_exceeded() -> None:
    one = of(faults.BiasLost(), "numerics.program")
    assert one.kind == BOUND
    assert one.ratio is not None
    assert one.ratio > 2
    assert "eager" in one.where


def test_values_that_are_unequal_are_counted() -> None:
    one = of(faults.RoundTowardZero(), "numerics.codes")
    assert one.kind == EXACT
    assert 1000 < one.differing < one.count


def test_what_a_check_does_not_see_has_no_kind() -> None:
    one = of(faults.RoundTowardZero(), "numerics.kernel")
    assert (one.kind, one.differing) == ("", 0)
    assert one.ratio is not None
    assert one.ratio < 1
    assert of(StubProvider(), "numerics.codes").kind == ""


def test_a_finding_of_another_kind_is_exact() -> None:
    bench = Bench(observe(AXES, StubProvider(), StubProvider()), AXES)
    lines = kills.distance("a fault", "numerics.nonzero", kind="", ratio=None, findings=("a whole row is zero",))
    assert (distance(lines, bench).kind, distance(lines, bench).differing) == (EXACT, 1)


def test_nan_is_within_no_bound() -> None:
    bench = Bench(observe(AXES, StubProvider(), StubProvider()), AXES)
    bench.meet("numerics.program", math.nan, "here", "output")
    one = distance(kills.distance(kind="", ratio=None), bench)
    assert (one.kind, one.ratio, one.where) == (BOUND, math.inf, "here")
    assert nearest(bench)[0] == math.inf


def test_a_clean_bench_keeps_away_from_every_bound() -> None:
    bench = Bench(observe(AXES, StubProvider(), StubProvider()), AXES)
    assert nearest(bench) == (None, "")
    assert judge_bench(bench).findings == ()
    ratio, where = nearest(bench)
    assert ratio is not None
    assert 0 < ratio < 0.5
    assert where.startswith("`numerics.")
    assert all(tally.differing == 0 for tally in bench.tallies.values())


def test_what_arithmetic_reaches_by_construction_hides_nothing() -> None:
    bench = Bench(observe(AXES, StubProvider(), StubProvider()), AXES)
    tie = "output = recorded output + bias"
    bench.meet("numerics.program", 0.3, "elsewhere", "output")
    bench.meet("numerics.tap", 0.5, "a tie", tie)
    assert nearest(bench) == (0.3, "`numerics.program` elsewhere")
    bench.meet("numerics.tap", 0.51, "beyond", tie)
    assert nearest(bench) == (0.51, "`numerics.tap` beyond")
    only = Bench(observe(AXES, StubProvider()), AXES)
    only.meet("numerics.tap", 0.5, "a tie", tie)
    assert nearest(only) == (0.0, "")


def test_a_twin_near_a_tight_bound_is_looked_at_with_noise_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run beyond that bound would be; a chain of linears has no such noise, and stays where it is."""
    cell = Judging(Cell("cell", AXES, None), observe(AXES, StubProvider(), StubProvider()))
    seen: list[Bench] = []

    def near(bench: Bench) -> tuple[float | None, str]:
        seen.append(bench)
        return (0.2, "noisy") if bench.noisy else (0.6, "tight")

    monkeypatch.setattr(margins_measure, "nearest", near)
    one = margins_measure._of_twin(near_twin(), cell)
    assert (one.ratio, one.where) == (0.2, "noisy")
    assert [bench.noisy for bench in seen] == [False, True]
    assert nearest(seen[0]) == nearest(seen[1])


def test_faults_of_numbers_are_measured_over_seeds_and_data_and_others_once() -> None:
    made = measures(["round_toward_zero", "leaky_exit"], (3, 4), ALL)
    drawn = [(m.job.fault, m.job.seed, m.job.data) for m in made if not m.twin]
    wide = [("round_toward_zero", seed, data) for data in ALL for seed in (3, 4)]
    assert drawn == [*wide, ("leaky_exit", 3, None)]
    assert len([m for m in made if m.twin]) == 6  # the twin of leaky_exit is one of them
    assert len({m.cell.id for m in made}) == len(made)
    assert not any("+" in m.cell.axes.provider.name for m in made if m.twin)


def test_a_cell_that_names_its_data_keeps_it() -> None:
    fixed = [name for name, path in FAULTS.items() if "data" in load(path).where and load(path).caught_by in CHECKS]
    for name in fixed:
        (only,) = (m for m in measures([name], (0,), ALL) if not m.twin)
        assert only.cell.axes.data == load(FAULTS[name]).where["data"]


@pytest.mark.parametrize("twin", [False, True])
def test_a_real_cell(twin: bool) -> None:
    job = Measure(Job("believes_too_much", 0), twin)
    one = measure(job)
    assert (one.error, one.case, one.cell, one.spoiled) == ("", "toy_linear", job.cell.id, False)
    if twin:
        assert (one.findings, one.ratio) == ((), None)  # traced: nothing had a value
    else:
        assert (one.kind, one.differing, one.count) == (EXACT, 1, 0)
    assert lost(job, "killed").error == "killed"


def test_the_counts_of_unequal_values_are_those_of_the_findings() -> None:
    bench = Bench(observe(AXES, StubProvider(), faults.BiasLost()), AXES)
    judge_bench(bench)
    found = [f for f in CHECKS["numerics.eager"](bench) if "the bits of eager" in f.expected]
    bits = bench.tallies["numerics.eager", "bits"]
    assert 0 < bits.differing == 2 * len(found) < bits.count  # counted when judged, and just now
    assert bench.tallies["numerics.finite", "values"].differing == 0
    assert torch.isfinite(bench.view.oracle.steps[-1].output).all()
