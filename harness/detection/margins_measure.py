"""How far from its bound a faulty cell's named check is, and how near to any bound the clean twin of the cell comes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.detection.kill_measure import Job, spoiled
from harness.faults import FAULTS
from harness.faults.fault import Fault
from harness.judge.calibrate_catalogue import BOUNDS, LARGEST_GOOD
from harness.judge.check import Enabled, Judging
from harness.judge.numerics import CHECKS as NUMERIC_CHECKS
from harness.judge.numerics import bench_of, judge_bench
from harness.judge.numerics_bench import Bench, Tally
from harness.providers.protocol import ProviderUnavailable
from harness.registry import load
from harness.run.execute import judge, observed
from harness.types import Cell

BOUND, EXACT = "bound", "exact"
REACHED = {bound.name: bound.reached for bound in BOUNDS if bound.reached}


@dataclass(frozen=True)
class Measure:
    """One cell to measure: the faulty one of a job, or its clean ``twin``."""

    job: Job
    twin: bool = False

    @property
    def cell(self) -> Cell:
        return self.job.cells[int(self.twin)]


@dataclass(frozen=True)
class Distance:
    """How far one cell was from a bound.

    Of a faulty cell: ``kind`` says what caught it, a "bound" that was exceeded (``ratio`` is value / bound), or an
    "exact" comparison (``differing`` of ``count`` values; or findings, with a count of 0); empty where nothing did.
    Of a clean ``twin``: ``ratio`` is the largest value / bound of any check, None where nothing had one, and
    ``findings`` should be none. ``where`` is where ``ratio`` was met. ``case`` is the cell's.
    """

    fault: str
    named: str
    twin: bool
    case: str
    cell: str
    seed: int
    data: str
    kind: str = ""
    ratio: float | None = None
    differing: int = 0
    count: int = 0
    where: str = ""
    findings: tuple[str, ...] = ()
    unavailable: str = ""
    error: str = ""
    seconds: float = 0.0
    spoiled: bool = False


def measures(names: Iterable[str], seeds: Iterable[int], data: Iterable[str]) -> list[Measure]:
    """The cells to measure: faults of numeric checks over all seeds and kinds of data, others once, since nothing that
    they are caught by looks at values; a cell that names its data keeps it. Of equal twins one.
    """
    made: list[Measure] = []
    twins: set[str] = set()
    for name in names:
        for job in _jobs(load(FAULTS[name]), tuple(seeds), tuple(data)):
            made.append(Measure(job))
            twin = Measure(job, twin=True)
            if twin.cell.id not in twins:
                twins.add(twin.cell.id)
                made.append(twin)
    return made


def _jobs(fault: Fault, seeds: tuple[int, ...], data: tuple[str, ...]) -> list[Job]:
    if fault.caught_by not in NUMERIC_CHECKS:
        return [Job(fault.name, seeds[0])]
    kinds: tuple[str | None, ...] = (None,) if "data" in fault.where else data
    return [Job(fault.name, seed, kind) for kind in kinds for seed in seeds]


def measure(one: Measure) -> Distance:
    """Observe and judge one cell. What the harness itself raises is written down: no cell may end the others."""
    started = time.perf_counter()
    record = _empty(one)
    try:
        with observed(one.cell) as judging:
            record = _of_twin(record, judging) if one.twin else _of_fault(record, judging)
    except ProviderUnavailable as error:
        record = replace(record, unavailable=error.reason)
    except Exception as error:
        record = replace(record, error=f"{type(error).__name__}: {error}")
    return replace(record, seconds=round(time.perf_counter() - started, 2), spoiled=spoiled())


def lost(one: Measure, why: str) -> Distance:
    """The record of a cell whose process died, or was ended."""
    return replace(_empty(one), error=why)


def _empty(one: Measure) -> Distance:
    axes = one.cell.axes
    return Distance(one.job.fault, one.job.caught_by, one.twin, axes.case, one.cell.id, axes.seed, axes.data)


def _of_twin(record: Distance, judging: Judging) -> Distance:
    findings = [*judge(judging, Enabled(but=frozenset(NUMERIC_CHECKS))).findings]
    bench = bench_of(judging.obs, judging.axes)
    if bench is not None:
        findings += judge_bench(bench).findings
    record = replace(record, findings=tuple(map(str, findings)))
    if bench is None:
        return record
    ratio, where = nearest(bench)
    if ratio is not None and ratio > LARGEST_GOOD:
        ratio, where = _beyond(bench)
    return replace(record, ratio=ratio, where=where)


def _beyond(bench: Bench) -> tuple[float | None, str]:
    """The largest value / bound with the noise of high-precision operations measured.

    A run beyond the tight bounds would be judged with it, so that it is this bound which a good run must keep away
    from: an activation far in its tail turns one rounding of what it is given into many of its result.
    """
    noisy = Bench(bench.raw, bench.axes, bench.runs, noisy=True)
    judge_bench(noisy)
    return nearest(noisy)


def nearest(bench: Bench) -> tuple[float | None, str]:
    """The largest value / bound of a judged bench, and where; what correct arithmetic reaches by construction is left
    out up to there, since it would hide all others."""
    met = []
    for (check, part), tally in bench.tallies.items():
        ratio, where = _worst(tally)
        if tally.worst is not None and not ratio <= REACHED.get((check, part), 0.0):
            met.append((ratio, f"`{check}` {where}"))
    bounded = any(tally.worst is not None for tally in bench.tallies.values())
    return max(met, default=(0.0 if bounded else None, ""))


def _of_fault(record: Distance, judging: Judging) -> Distance:
    only = Enabled(only=frozenset({record.named}))
    bench = bench_of(judging.obs, judging.axes) if record.named in NUMERIC_CHECKS else None
    findings = judge(judging, only).findings if bench is None else judge_bench(bench, only).findings
    record = replace(record, findings=tuple(map(str, findings)))
    if bench is not None:
        return distance(record, bench)
    return replace(record, kind=EXACT, differing=len(findings)) if findings else record


def distance(record: Distance, bench: Bench) -> Distance:
    """``record`` with what its named check, which alone has been run on this bench, met there.

    One unequal value is enough where equality is asked for. Only where there was none does the largest value / bound
    tell how sure the red is. Findings without either are of shapes, or of tensors that are missing: exact.
    """
    tallies = [tally for (check, _), tally in bench.tallies.items() if check == record.named]
    unequal = [tally for tally in tallies if tally.differing]
    ratio, where = max((_worst(tally) for tally in tallies), default=(0.0, ""))
    if not record.findings:
        return replace(record, ratio=ratio, where=where)
    if unequal:
        differing, count = sum(tally.differing for tally in unequal), sum(tally.count for tally in unequal)
        return replace(record, kind=EXACT, differing=differing, count=count)
    if ratio > 1:
        return replace(record, kind=BOUND, ratio=ratio, where=where)
    return replace(record, kind=EXACT, differing=len(record.findings))


def _worst(tally: Tally) -> tuple[float, str]:
    return (_ordered(tally.worst.ratio), tally.worst.where) if tally.worst else (0.0, "")


def _ordered(ratio: float) -> float:
    """NaN is within no bound."""
    return math.inf if math.isnan(ratio) else ratio
