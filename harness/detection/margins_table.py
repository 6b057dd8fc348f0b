"""Margins in words: how far each fault is from the bound that must see it, and how near its clean twin comes to any."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.detection.command import by_machine, environment, not_looked_at
from harness.detection.journal import Journal
from harness.detection.margins_measure import BOUND, EXACT, Distance
from harness.faults import FAULTS
from harness.judge.calibrate_catalogue import LARGEST_GOOD
from harness.judge.calibrate_table import VERSIONS, number, table

# A fault nearer to its bound than this is seen by luck: other data may hide it.
SMALLEST_SEEN = 2.0


def wrong(one: Distance) -> str:
    """What is wrong with one record, in words; empty where nothing is."""
    place = f"seed {one.seed}, {one.data} data"
    if one.unavailable:
        return ""
    if one.error:
        return f"{place}: {one.error}"
    if one.twin:
        if one.findings:
            return f"clean twin is red at {place}: {one.findings[0]}"
        near = one.ratio is not None and not one.ratio <= LARGEST_GOOD
        return f"clean twin at {number(one.ratio or 0)} of a bound at {place}: {one.where}" if near else ""
    if not one.kind:
        return f"`{one.named}` is green at {place}" + (f", at {number(one.ratio)} of its bound" if one.ratio else "")
    near = one.kind == BOUND and not (one.ratio or 0.0) >= SMALLEST_SEEN
    return f"only {times(one.ratio or 0.0)} of the bound of `{one.named}` at {place}: {one.where}" if near else ""


def times(ratio: float) -> str:
    """A value / bound of a fault, rounded down, so that no rounding makes it look larger."""
    if not math.isfinite(ratio):
        return str(ratio)
    digits = max(0, 1 - math.floor(math.log10(ratio))) if ratio else 0
    return f"{math.floor(ratio * 10**digits * (1 + 1e-12)) / 10**digits:.{digits}f}" if ratio < 1e6 else f"{ratio:.0e}"


def measured(journals: Sequence[Journal[Distance]]) -> list[Distance]:
    """Records of registered faults, a later one of the same cell in place of an earlier one."""
    found = {one.cell: one for journal in journals for one in journal.records if one.fault in FAULTS}
    return list(found.values())


def work(journals: Sequence[Journal[Distance]], *, part: bool = False) -> list[str]:
    """What is left to do on one machine, a line each. ``part``: only some faults were asked for."""
    lines = [f"`{one.fault}`: {word}" for one in measured(journals) if (word := wrong(one))]
    return lines if part else lines + [f"`{name}` was not measured" for name in not_looked_at(journals)]


def section(journals: Sequence[Journal[Distance]]) -> str:
    """The page's section on one machine, of which all journals are.

    Raises:
        ValueError: nothing was measured.
    """
    records = [one for one in measured(journals) if not one.unavailable]
    if not records:
        raise ValueError("nothing was measured")
    faulty = _by([one for one in records if not one.twin], lambda one: one.fault)
    held = {name: own for name, own in faulty.items() if any(one.kind == BOUND for one in own)}
    exact = {name: own for name, own in faulty.items() if name not in held}
    twins = _by([one for one in records if one.twin], lambda one: one.case)
    lines = work(journals)
    blocks = [
        f"## Margins: {journals[0].header.machine}",
        environment(journals, VERSIONS),
        _summary(records),
        "Work to do: " + ("\n\n" + "\n".join(f"- {line}" for line in lines) if lines else "none."),
        "### Faults that a bound catches",
        table(
            ("fault", "check", "cells", "smallest value / bound", "largest", "smallest met at"),
            sorted((_held(name, own) for name, own in held.items()), key=lambda line: line[0]),
        ),
        "### Faults that an equality or a count catches",
        table(("fault", "check", "cells", "fewest that differ"), [_exact(name, own) for name, own in exact.items()]),
        "### Clean twins",
        table(("case", "cells", "largest value / bound", "met at"), [_twin(case, own) for case, own in twins.items()]),
    ]
    return "\n\n".join(blocks) + "\n"


def sections(journals: Sequence[Journal[Distance]]) -> Mapping[str, str]:
    """The section of each machine."""
    return {machine: section(own) for machine, own in by_machine(journals).items()}


def _by(records: Iterable[Distance], key: Callable[[Distance], str]) -> Mapping[str, list[Distance]]:
    groups: dict[str, list[Distance]] = {}
    for one in records:
        groups.setdefault(key(one), []).append(one)
    return groups


def _summary(records: Sequence[Distance]) -> str:
    seeds = ", ".join(map(str, sorted({one.seed for one in records})))
    kinds = ", ".join(dict.fromkeys(one.data for one in records))
    held = [one.ratio or 0.0 for one in records if one.kind == BOUND]
    clean = [one.ratio for one in records if one.twin and one.ratio is not None]
    texts = [f"{sum(not one.twin for one in records)} faulty cells and {sum(one.twin for one in records)} clean twins"]
    texts.append(f"seeds {seeds}; data {kinds}.")
    if held:
        texts.append(
            f"Smallest value / bound of a fault **{times(min(held))}** ({len(held)} cells held against a bound)."
        )
    if clean:
        texts.append(f"Largest value / bound of a clean twin **{number(max(clean))}**.")
    return f"{texts[0]}; {' '.join(texts[1:])}"


def _held(name: str, own: Sequence[Distance]) -> Sequence[str]:
    """A line on the cells in which a bound was exceeded; those that an equality caught are surer, and only counted."""
    bounded = sorted((one for one in own if one.kind != EXACT), key=lambda one: one.ratio or 0.0)
    least, most = bounded[0], bounded[-1]
    ratios = times(least.ratio or 0.0), times(most.ratio or 0.0)
    place = f"seed {least.seed}, {least.data}: {least.where}"
    cells = str(len(own)) + (f", {len(own) - len(bounded)} exact" if len(own) > len(bounded) else "")
    shown = ratios[0] if (least.ratio or 0.0) >= SMALLEST_SEEN else f"**{ratios[0]}**"
    return f"`{name}`", f"`{least.named}`", cells, shown, ratios[1], place


def _exact(name: str, own: Sequence[Distance]) -> Sequence[str]:
    least = min(own, key=lambda one: one.differing)
    figure = f"{least.differing:,}" + (f" of {least.count:,}" if least.count else "")
    return f"`{name}`", f"`{least.named}`", str(len(own)), figure if least.differing else "**none**"


def _twin(case: str, own: Sequence[Distance]) -> Sequence[str]:
    bounded = [one for one in own if one.ratio is not None]
    if not bounded:
        return f"`{case}`", str(len(own)), "–", "–"
    worst = max(bounded, key=lambda one: one.ratio or 0.0)
    return f"`{case}`", str(len(own)), number(worst.ratio or 0.0), f"seed {worst.seed}, {worst.data}, {worst.where}"
