"""A finished run against its baseline, where no cell can speak for itself; and what the run makes of the file.

More breaks, recompilations, eager frames or graphs than measured are findings of the cell itself
(``compile.breaks``...). What is left is judged here, over results alone:

* a cell that the plan no longer has, or that ran on another architecture;
* weaker evidence: emulated where it was native, skipped where it ran, arithmetic that nobody judged any more;
* fewer FP8 GEMMs, or nothing measured where there was a measurement: a case whose statement moves together with its
  measurement is green by its own checks;
* more of anything in a cell that a waiver forgives: the waiver knew of the failure, the baseline knows how bad it was.

Waivers outrank budgets: a cell that passed and is an expected failure now is told, not red. A quarantine never gates.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from harness.baseline import COUNTS, EVIDENCE_ORDER, Baseline, BaselineCell, BaselineUse, Environment
from harness.report.evidence import fp8_judged
from harness.types import CellResult, Verdict

GRAPHS_CHECK = "compile.graphs"
GEMMS_CHECK = "fp8.gemms"
MAX_NAMED = 3
GONE = "no such cell (if that is meant, --update-baseline takes its line out)"


@dataclass(frozen=True)
class BaselineFinding:
    """One difference from a baseline and every cell that shows it. ``place``: ``file:line`` of the first entry."""

    check: str  # baseline.evidence, baseline.graphs...
    expected: str
    got: str
    ids: tuple[str, ...]
    place: str = ""

    def __str__(self) -> str:
        return f"{self.check}: expected {self.expected} ({self.place}), got {self.got}: {named(self.ids)}"


@dataclass(frozen=True)
class BaselineReport:
    """What run.json says of the baseline. ``findings`` make the run red; ``better`` and ``notes`` don't.

    ``measured`` is where the baseline was measured, ``changed`` what is different here, ``compared`` the number of
    cells that were held against an entry.
    """

    file: str
    measured: str
    changed: tuple[str, ...] = ()
    compared: int = 0
    findings: tuple[BaselineFinding, ...] = ()
    better: tuple[BaselineFinding, ...] = ()
    notes: tuple[str, ...] = ()


def named(ids: Sequence[str]) -> str:
    """A few ids in full, the others counted."""
    rest = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
    return ", ".join(ids[:MAX_NAMED]) + rest


def measure(result: CellResult) -> BaselineCell:
    """The entry of a result that is as expected.

    Raises:
        ValueError: the result is red: a baseline has no entry for that.
    """
    if result.verdict.is_red:
        raise ValueError(f"{result.id} is {result.verdict.value}: not what a baseline holds")
    census = result.census
    counts: Mapping[str, Any] = dict.fromkeys(COUNTS)
    # A refusal leaves a census too; it says nothing of a program that compiles.
    if GRAPHS_CHECK in result.checks:
        counts = {
            "graph_breaks": max(len(census.get("breaks", ())), int(census.get("counter_breaks", 0))),
            **{name: len(census.get(name, ())) for name in ("recompiles", "unimplemented")},
            **{name: int(census.get(name, 0)) for name in ("eager_frames", "graphs", "steady_compiles")},
        }
    return BaselineCell(
        id=result.id,
        arch=result.arch,
        verdict=cast(Any, result.verdict.value),
        evidence=cast(Any, result.evidence.value),
        fp8_judged=fp8_judged(result),
        fp8_gemms=_fp8_gemms(result) if GEMMS_CHECK in result.checks else None,
        **counts,
    )


def _fp8_gemms(result: CellResult) -> int:
    gemms = result.fp8.get("gemms", ())
    return sum(int(gemm["count"]) for gemm in gemms if str(gemm["kind"]).startswith("fp8_"))


@dataclass(frozen=True)
class _Change:
    check: str
    expected: str
    got: str
    is_worse: bool


def _changes(was: BaselineCell, now: BaselineCell, reason: str) -> list[_Change]:
    """Everything in which two entries of one cell differ and that is better or worse."""
    before, after = (EVIDENCE_ORDER.index(entry.evidence) for entry in (was, now))
    changes = []
    if before != after:
        got = f"{now.verdict} ({reason})" if now.verdict == "skip" else now.evidence
        changes.append(_Change("baseline.evidence", was.evidence, got, after < before))
    if after < before:  # which explains whatever else is missing
        return changes
    if was.verdict == "xfail" and now.verdict == "pass":
        changes.append(_Change("baseline.verdict", "xfail", "pass", False))
    if was.verdict == now.verdict == "pass" and was.fp8_judged != now.fp8_judged:
        words = ("not judged", "judged")
        got = f"{words[now.fp8_judged]}" + (f" ({reason})" if reason and not now.fp8_judged else "")
        changes.append(_Change("baseline.fp8_judged", f"FP8 arithmetic {words[was.fp8_judged]}", got, was.fp8_judged))
    if was.verdict == now.verdict:
        # A failing cell has any number of graphs: only what a waiver can forgive is compared.
        skipped = () if was.verdict == "pass" else ("graphs",)
        for name in (name for name in (*COUNTS, "fp8_gemms") if name not in skipped):
            changes += _count_change(name, getattr(was, name), getattr(now, name))
    return changes


def _count_change(name: str, was: int | None, now: int | None) -> list[_Change]:
    """More is worse, but for FP8 GEMMs; so is a count that is no longer there."""
    if was is None or was == now:
        return []
    check = f"baseline.{name}"
    more_is_better = name == "fp8_gemms"
    bound = "at least" if more_is_better else "at most"
    if now is None:
        return [_Change(check, f"{bound} {was}", "nothing measured", True)]
    return [_Change(check, f"{bound} {was}", str(now), (now < was) is more_is_better)]


def judge_baseline(use: BaselineUse, results: Sequence[CellResult], *, complete: bool) -> BaselineReport:
    """Hold the results of a run against its baseline. Cells that were not selected, or not run, are not compared.

    ``complete``: every cell of the plan was selected. A complete run of which the baseline knows no cell is red.
    """
    entries = {cell.id: cell for cell in use.baseline.cells}
    ran = [result for result in results if result.attempts]
    known = [result for result in ran if result.id in entries]
    worse, better, waived = _Groups(use), _Groups(use), []
    for result in known:
        entry = entries[result.id]
        if result.arch != entry.arch:
            worse.add(result.id, _Change("baseline.arch", f"a run on {entry.arch}", result.arch, True))
        elif not result.verdict.is_red:
            for change in _changes(entry, measure(result), result.reason):
                (worse if change.is_worse else better).add(result.id, change)
            if entry.verdict == "pass" and result.verdict is Verdict.XFAIL:
                waived.append(result.id)
    if not use.gone_because:
        for cell_id in use.gone:
            worse.add(cell_id, _Change("baseline.gone", "a cell of the plan", GONE, True))
    findings = worse.findings()
    if not known and complete and entries:
        findings.append(BaselineFinding("baseline.compared", "a cell that the baseline knows", "none", (), use.file))
    return BaselineReport(
        file=use.file,
        measured=str(use.baseline.environment),
        changed=tuple(use.baseline.environment.changes(use.here)),
        compared=len(known),
        findings=tuple(findings),
        better=tuple(better.findings()),
        notes=tuple(_notes(use, entries, ran, waived)),
    )


def _notes(
    use: BaselineUse, entries: Mapping[str, BaselineCell], ran: Sequence[CellResult], waived: Sequence[str]
) -> Iterable[str]:
    unknown = [result.id for result in ran if result.id not in entries]
    reds = [r.id for r in ran if r.verdict.is_red and r.id in entries and entries[r.id].verdict == "pass"]
    older = [cell.id for cell in use.baseline.cells if cell.environment is not None]
    for ids, text in (
        (reds, "red, and passed in the baseline"),
        (waived, "passed in the baseline, and an expected failure by a waiver now"),
        (unknown, "not in the baseline"),
        (use.gone if use.gone_because else (), f"in the baseline and not in the plan ({use.gone_because})"),
        (older, "in the baseline from an earlier environment than the file's"),
    ):
        if ids:
            yield f"{many(len(ids))} {text}: {named(ids)}"


def many(count: int) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{count} cell{'' if count == 1 else 's'}"


class _Groups:
    """Changes of many cells, those that say the same as one finding."""

    def __init__(self, use: BaselineUse) -> None:
        self._use = use
        self._ids: dict[_Change, list[str]] = {}

    def add(self, cell_id: str, change: _Change) -> None:
        self._ids.setdefault(change, []).append(cell_id)

    def findings(self) -> list[BaselineFinding]:
        return [
            BaselineFinding(change.check, change.expected, change.got, tuple(ids), self._use.place(ids[0]))
            for change, ids in self._ids.items()
        ]


@dataclass(frozen=True)
class Update:
    """What an update makes of a baseline. Each tuple holds ids; ``kept`` has an entry that this run didn't replace.

    ``left_out`` are red cells that have no entry either: nothing is known of them that could be held against a run.
    """

    baseline: Baseline
    same: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept_red: tuple[str, ...] = ()
    kept_worse: tuple[str, ...] = ()
    kept_unselected: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def written(self) -> int:
        """Entries that rest on this run."""
        return len(self.same) + len(self.changed) + len(self.added)


def update(
    matrix: str,
    here: Environment,
    use: BaselineUse | None,
    report: BaselineReport | None,
    results: Sequence[CellResult],
    *,
    complete: bool,
) -> Update:
    """The baseline after a finished run: what was as expected and no worse than before replaces its entry.

    Everything else keeps the entry it has, so that an update never turns a red cell green: to accept something worse,
    a person takes its line out of the file. ``use``: the file as it was, None where there was none. ``complete``: every
    cell of the plan was selected; then entries that the plan has no cell for go.
    """
    old = {cell.id: cell for cell in use.baseline.cells} if use else {}
    worse = {cell_id for finding in report.findings for cell_id in finding.ids} if report else set()
    ran = {result.id: result for result in results if result.attempts}
    fresh = {i: measure(r) for i, r in ran.items() if not r.verdict.is_red and i not in worse}
    gone = set(use.gone) if use and complete else set()
    kept = {i: _kept(cell, use.baseline.environment, here) for i, cell in old.items() if i not in fresh} if use else {}
    return Update(
        baseline=Baseline(matrix, here, tuple(_sorted(cell for i, cell in {**kept, **fresh}.items() if i not in gone))),
        same=tuple(i for i, cell in fresh.items() if i in old and old[i] == cell),
        changed=tuple(i for i, cell in fresh.items() if i in old and old[i] != cell),
        added=tuple(i for i in fresh if i not in old),
        removed=tuple(i for i in old if i in gone),
        kept_red=tuple(i for i in kept if i in ran and ran[i].verdict.is_red),
        kept_worse=tuple(i for i in kept if i in ran and not ran[i].verdict.is_red),
        kept_unselected=tuple(i for i in kept if i not in ran and i not in gone),
        left_out=tuple(i for i, result in ran.items() if result.verdict.is_red and i not in old),
    )


def _kept(cell: BaselineCell, before: Environment, here: Environment) -> BaselineCell:
    """An entry that stays, with where it was measured if that is not what the file will say."""
    origin = cell.environment or before
    return dataclasses.replace(cell, environment=None if origin == here else origin)


def _sorted(cells: Iterable[BaselineCell]) -> list[BaselineCell]:
    return sorted(cells, key=lambda cell: cell.id)


def baseline_title(report: BaselineReport, count: int) -> str:
    """One line: the file, whether the run is no worse, and how many of its ``count`` cells were compared."""
    word = "NOT held" if report.findings else "held"
    return f"baseline {report.file}: {word}, {report.compared} of {count} cells compared"


def told(report: BaselineReport, matrix: str) -> list[str]:
    """Everything beside the findings, in lines."""
    lines = [f"measured on {report.measured}"]
    if report.changed:
        lines.append(f"now {'; '.join(report.changed)}")
    lines += [f"better: {finding}" for finding in report.better]
    if report.better:
        words = shlex.join(["python", "runner.py", "--matrix", matrix, "--update-baseline", "--baseline", report.file])
        lines.append(f"to keep what is better: {words}")
    return [*lines, *(f"note: {note}" for note in report.notes)]
