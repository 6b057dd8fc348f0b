"""One faulty cell, observed once and judged often: by each check alone, and by all but the one that must see it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from harness.faults import FAULTS
from harness.faults.cell import cells_of
from harness.faults.fault import Fault
from harness.judge.check import Enabled, Judging
from harness.judge.verdict import CHECK_NAMES, Judged
from harness.observe.census import compile_switches
from harness.providers.protocol import ProviderUnavailable
from harness.registry import load
from harness.run.device import lost_context
from harness.run.execute import judge, observed
from harness.types import Cell


@dataclass(frozen=True)
class Job:
    """A fault in its cell; ``seed`` and ``data`` (None: the cell's own) draw what the program is fed with."""

    fault: str
    seed: int
    data: str | None = None

    @property
    def cells(self) -> tuple[Cell, Cell]:
        """The faulty cell and its clean twin."""
        fault: Fault = load(FAULTS[self.fault])
        drawn = {"seed": self.seed} if self.data is None else {"seed": self.seed, "data": self.data}
        return cells_of(replace(fault, where={**fault.where, **drawn}))

    @property
    def caught_by(self) -> str:
        fault: Fault = load(FAULTS[self.fault])
        return fault.caught_by


@dataclass(frozen=True)
class Killed:
    """What each way of judging one faulty cell found, by names of checks.

    ``alone``: red as the only one enabled. ``removed``: red where all but the named one are enabled. ``together``: red
    where all are. ``bare``: the verdict where none is, empty where that is green, as it must be. ``finding``: the first
    word of the named check alone. ``unavailable``: why this cell can't run here. ``error``: why there is nothing to
    judge. ``spoiled``: the process must not run another cell.
    """

    fault: str
    named: str
    seed: int
    cell: str
    evidence: str = ""
    alone: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    bare: str = ""
    finding: str = ""
    unavailable: str = ""
    error: str = ""
    seconds: float = 0.0
    spoiled: bool = False

    @property
    def caught(self) -> bool:
        return self.named in self.alone

    @property
    def others(self) -> tuple[str, ...]:
        """Checks that see it alone, the named one left out."""
        return tuple(name for name in self.alone if name != self.named)

    @property
    def dependent(self) -> tuple[str, ...]:
        """Checks that answer otherwise in company than alone: they need, or suffer from, another check's code."""
        in_company = set(self.together) ^ set(self.alone)
        return tuple(sorted(in_company | (set(self.removed) ^ set(self.others))))


def measure(job: Job) -> Killed:
    """Observe and judge one fault. What the harness itself raises is written down: no fault may end the others."""
    started = time.perf_counter()
    record = Killed(job.fault, job.caught_by, job.seed, job.cells[0].id)
    try:
        with observed(job.cells[0]) as judging:
            record = _judged(record, judging)
    except ProviderUnavailable as error:
        record = replace(record, unavailable=error.reason)
    except Exception as error:
        record = replace(record, error=f"{type(error).__name__}: {error}")
    return replace(record, seconds=round(time.perf_counter() - started, 2), spoiled=spoiled())


def spoiled() -> bool:
    """True where a cell left something behind that the next one of this process would meet."""
    return bool(compile_switches() or lost_context())


def lost(job: Job, why: str) -> Killed:
    """The record of a job whose process died, or was ended."""
    return Killed(job.fault, job.caught_by, job.seed, job.cells[0].id, error=why)


def _judged(record: Killed, judging: Judging) -> Killed:
    alone = {name: judge(judging, Enabled(only=frozenset({name}))) for name in CHECK_NAMES}
    red = tuple(name for name, judged in alone.items() if _sees(name, judged))
    bare = judge(judging, Enabled(only=frozenset()))
    named = alone[record.named].findings
    return replace(
        record,
        evidence=judging.obs.evidence.value,
        alone=red,
        removed=_red(judge(judging, Enabled(but=frozenset({record.named})))),
        together=_red(judge(judging)),
        bare=bare.verdict.value if bare.verdict.is_red else "",
        finding=str(named[0]) if named else "",
    )


def _sees(name: str, judged: Judged) -> bool:
    return judged.verdict.is_red and any(finding.check == name for finding in judged.findings)


def _red(judged: Judged) -> tuple[str, ...]:
    if not judged.verdict.is_red:
        return ()
    return tuple(dict.fromkeys(finding.check for finding in judged.findings))
