"""Tables of a calibration, and the machine's section of docs/detection.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.judge.calibrate_catalogue import BOUNDS, EQUALITIES, LARGEST_GOOD, UNDECIDED, Bound, Name
from harness.judge.calibrate_records import Calibration, Measured, Met
from harness.types import DATA_KINDS

SMALLEST_SHOWN = 0.001


@dataclass(frozen=True)
class Worst:
    """The largest value / bound, and the cell and tensor that had it."""

    ratio: float
    cell: str
    where: str

    @property
    def headroom(self) -> float:
        """How many times the bound is as large as the value."""
        return math.inf if self.ratio == 0 else 1 / self.ratio


@dataclass(frozen=True)
class Row:
    """One name of the catalogue for one provider, by kind of data: how many comparisons, and the largest value / bound
    of each cell."""

    bound: Bound
    provider: str
    counts: Mapping[str, int]
    ratios: Mapping[str, Sequence[float]]
    worst: Worst | None

    @property
    def count(self) -> int:
        return sum(self.counts.values())


def rows(cells: Sequence[Measured], bounds: Iterable[Bound]) -> list[Row]:
    """A row for each bound and provider, also where nothing was compared; names that ``bounds`` lack are left out."""
    providers = list(dict.fromkeys(cell.provider for cell in cells))
    return [_row(bound, name, [c for c in cells if c.provider == name]) for bound in bounds for name in providers]


def _row(bound: Bound, provider: str, cells: Sequence[Measured]) -> Row:
    counts: dict[str, int] = dict.fromkeys(DATA_KINDS, 0)
    ratios: dict[str, list[float]] = {kind: [] for kind in DATA_KINDS}
    met = [(cell, item) for cell in cells for item in cell.met if item.name == bound.name]
    for cell, item in met:
        counts[cell.data] += item.count
        if item.worst is not None:
            ratios[cell.data].append(item.worst)
    return Row(bound, provider, counts, ratios, _worst(met))


def _worst(met: Iterable[tuple[Measured, Met]]) -> Worst | None:
    bounded = [(item.worst, cell, item) for cell, item in met if item.worst is not None]
    if not bounded:
        return None
    ratio, cell, item = max(bounded, key=lambda entry: _ordered(entry[0]))
    return Worst(_ordered(ratio), cell.cell, item.where)


def _ordered(ratio: float) -> float:
    """NaN counts as infinite: it is within no bound."""
    return math.inf if math.isnan(ratio) else ratio


def worst_of(cells: Sequence[Measured], without: Sequence[Name] = ()) -> Worst | None:
    """The largest value / bound of all but ``without``; None where nothing was held against a bound."""
    return _worst((cell, item) for cell in cells for item in cell.met if item.name not in without)


def unnamed(cells: Sequence[Measured], known: Iterable[Name]) -> list[Name]:
    """Names that were met and that the catalogue lacks."""
    names = set(known)
    return sorted({item.name for cell in cells for item in cell.met} - names)


# ---- markdown ------------------------------------------------------------------------------------------------------


def section(calibrations: Sequence[Calibration]) -> str:
    """The section of one machine: what ran, and every table. The calibrations' headers name the same machine.

    Raises:
        ValueError: no calibration, or none that judged anything.
    """
    cells = [cell for one in calibrations for cell in one.judged]
    if not cells:
        raise ValueError("nothing was measured")
    bounded = rows(cells, BOUNDS)
    blocks = [
        f"## {calibrations[0].header.machine}",
        *_environment(calibrations),
        _summary(calibrations, cells),
        "### Value against bound",
        table(_BOUND_HEAD, [_bound_line(row, row.worst) for row in bounded if row.worst is not None]),
        *_decided(cells),
        *_never_met([row for row in bounded if row.worst is None]),
        "### Largest value / bound by recipe",
        _by(cells, "recipe", lambda cell: cell.recipe),
        "### Largest value / bound by nesting",
        _by(cells, "nesting", lambda cell: cell.nesting),
        "### Largest value / bound by shape, dtype and backend",
        _by(cells, "M,K,N · dtype · backend", lambda cell: f"{cell.shape} · {cell.dtype} · {cell.backend}"),
        "### Equalities",
        table(_EQUAL_HEAD, [_equal_line(row) for row in rows(cells, EQUALITIES)]),
        *_not_calibrated(calibrations),
    ]
    return "\n\n".join(blocks) + "\n"


VERSIONS = ("python", "torch", "cuda", "triton", "transformer_engine")

_BOUND_HEAD = ("bound", "provider", "compared", *DATA_KINDS, "headroom", "worst met in")
_EQUAL_HEAD = ("equality", "provider", *DATA_KINDS)


def _environment(calibrations: Sequence[Calibration]) -> Iterator[str]:
    header = calibrations[-1].header
    versions = ", ".join(f"{name} {header.versions[name]}" for name in VERSIONS if name in header.versions)
    dates = ", ".join(dict.fromkeys(one.header.date for one in calibrations))
    yield f"{dates}. {header.hardware}. {versions}."
    commands = [f"    {one.header.command}{_share(one)}" for one in calibrations]
    yield "\n".join(commands)


def _share(one: Calibration) -> str:
    measured, planned = len(one.cells), one.header.planned
    return f"    # {planned} cells" if measured == planned else f"    # interrupted: {measured} of {planned} cells"


def _summary(calibrations: Sequence[Calibration], cells: Sequence[Measured]) -> str:
    findings = sum(len(cell.findings) for one in calibrations for cell in one.cells)
    silent = sum(len(one.cells) for one in calibrations) - len(cells)
    text = f"{len(cells)} cells judged, {findings} findings."
    if silent:
        text += f" {silent} cells gave nothing to judge."
    worst = worst_of(cells)
    if worst is None:
        return text + " Nothing was held against a bound."
    if worst.ratio <= LARGEST_GOOD:
        reaching = [bound for bound in BOUNDS if bound.reached]
        free = worst_of(cells, [bound.name for bound in reaching]) or worst
        known = ", ".join(f"{_title(bound)} reaches {bound.reached}" for bound in reaching)
        return (
            f"{text} Largest value / bound **{number(free.ratio)}** ({known} by construction): every good run keeps a "
            "factor of two to every bound."
        )
    return (
        f"{text} **Largest value / bound {number(worst.ratio)}, nearer than a factor of two: work to do** "
        f"(`{worst.cell}`, {worst.where})."
    )


def _bound_line(row: Row, worst: Worst) -> Sequence[str]:
    spread = (_spread(row.ratios[kind]) for kind in DATA_KINDS)
    place = f"`{worst.cell}`: {worst.where}" if worst.ratio else "–"
    return (_title(row.bound), row.provider, f"{row.count:,}", *spread, _times(worst.headroom), place)


def _title(bound: Bound) -> str:
    return f"`{bound.name[0]}` {bound.name[1]}"


def _times(headroom: float) -> str:
    """Rounded down; a bound whose values were all zero has been met and not tried."""
    if math.isinf(headroom):
        return "–"
    if headroom > 100:
        return "> 100"
    return f"{math.floor(headroom)}" if headroom >= 10 else f"{math.floor(headroom * 10) / 10:.1f}"


def _never_met(lacking: Sequence[Row]) -> Iterator[str]:
    """Bounds that no run was held against: nothing is known of them here."""
    if lacking:
        yield "### Bounds that no run met here"
        lines = [(_title(row.bound), row.provider, row.bound.absent or "never met") for row in lacking]
        yield table(("bound", "provider", "what would meet it"), lines)


def _spread(ratios: Sequence[float]) -> str:
    """Median over cells and largest."""
    if not ratios:
        return "–"
    ordered = sorted(map(_ordered, ratios))
    return f"{number(statistics.median(ordered))} · {number(ordered[-1])}"


def number(ratio: float) -> str:
    """A value / bound in two digits, rounded up, so that no rounding makes it look smaller."""
    if not math.isfinite(ratio):
        return "inf"
    if ratio < SMALLEST_SHOWN:
        return "0" if ratio == 0 else f"< {SMALLEST_SHOWN}"
    digits = max(0, 1 - math.floor(math.log10(ratio)))
    return f"{math.ceil(ratio * 10**digits * (1 - 1e-12)) / 10**digits:.{digits}f}"


def _equal_line(row: Row) -> Sequence[str]:
    counts = (f"{row.counts[kind]:,}" if row.counts[kind] else "**none**" for kind in DATA_KINDS)
    return (f"`{row.bound.name[0]}` {row.bound.value}", row.provider, *counts)


def _decided(cells: Sequence[Measured]) -> Iterator[str]:
    """How often the interval of alpha was narrow enough to decide: an undecided projection judges nothing."""
    texts, some = [], False
    for provider in dict.fromkeys(cell.provider for cell in cells):
        met = [item for cell in cells if cell.provider == provider for item in cell.met]
        undecided = sum(item.count for item in met if item.name == UNDECIDED)
        decided = sum(item.count for item in met if item.name[0] == UNDECIDED[0]) - undecided
        texts.append(f"{decided:,} of {decided + undecided:,} projections ({provider})")
        some = some or undecided > 0
    yield f"α was decided in {', '.join(texts)}{'; in the others rounding exceeds quantisation' if some else ''}."


def _by(cells: Sequence[Measured], title: str, key: Callable[[Measured], str]) -> str:
    """The largest value / bound of each check, for each provider and each value of ``key``."""
    checks = list(dict.fromkeys(bound.name[0] for bound in BOUNDS))
    lines = []
    for provider, value in dict.fromkeys((cell.provider, key(cell)) for cell in cells):
        own = [cell for cell in cells if cell.provider == provider and key(cell) == value]
        worst = [_worst((c, item) for c in own for item in c.met if item.check == check) for check in checks]
        lines.append((value, provider, f"{len(own):,}", *("–" if w is None else number(w.ratio) for w in worst)))
    return table((title, "provider", "cells", *(check.rpartition(".")[2] for check in checks)), lines)


def _not_calibrated(calibrations: Sequence[Calibration]) -> Iterator[str]:
    entries = {(s.provider, s.recipe, s.what, s.reason): None for one in calibrations for s in one.header.skipped}
    for one in calibrations:
        for cell in one.cells:
            if not cell.judged:
                reason = "; ".join((*cell.findings, *cell.notes)) or "no check applied"
                entries[cell.provider, cell.recipe, f"`{cell.cell}`", reason] = None
    yield "### Not calibrated here"
    yield table(("provider", "recipe", "what", "reason"), list(entries)) if entries else "Nothing that was asked for."


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A markdown table."""

    def line(items: Sequence[str]) -> str:
        return "| " + " | ".join(" ".join(item.split()).replace("|", "\\|") for item in items) + " |"

    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, lines)])


# ---- the page ------------------------------------------------------------------------------------------------------


def replace_section(page: str, machine: str, text: str, *, kind: str = "calibration") -> str:
    """``page`` with the section of this kind and name replaced, or added at the end; every other line stays.

    Raises:
        ValueError: the page has one marker of the section without the other, or more than one section of this name.
    """
    first, last = f"<!-- {kind}: {machine} -->", f"<!-- end of {kind}: {machine} -->"
    block = f"{first}\n{text.strip()}\n{last}\n"
    if page.count(first) == page.count(last) == 0:
        return f"{page.rstrip()}\n\n{block}" if page.strip() else block
    start, end = page.find(first), page.find(last)
    if page.count(first) != 1 or page.count(last) != 1 or end < start:
        raise ValueError(f"the page's markers of section {machine!r} don't match")
    return page[:start] + block + page[end + len(last) :].removeprefix("\n")
