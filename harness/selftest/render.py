"""What a selftest prints and writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len

from harness.report.page import Page
from harness.selftest.outcome import End, Outcome
from harness.types import SCHEMA_VERSION

STYLES: Mapping[End, str] = {
    End.CAUGHT: "green",
    End.SKIPPED: "dim",
    End.MISSED: "bold red",
    End.OTHER: "bold red",
    End.UNPROVED: "bold red",
    End.UNMENDED: "bold red",
    End.RAISED: "bold red",
    End.NOT_RUN: "bold red",
    End.LOST: "bold red",
}
# In totals; the others are called what they are.
WORDS: Mapping[End, str] = {End.OTHER: "red by other checks only"}
LABEL, NAME = 8, 30  # cells of the widest end, and of most names
INDENT = " " * (LABEL + 2)
FILE = "selftest.json"


def put_outcomes(
    page: Page, outcomes: Sequence[Outcome], *, verbosity: int = 0, again: Callable[[Outcome], Sequence[str]]
) -> None:
    """Faults that were not caught: each with its cell, the reason, and the command that runs it ``again``.

    Args:
        verbosity: -1 a line for each of those; 1 also a line for each of the others, before them.
    """
    several = {name for name, count in Counter(one.fault for one in outcomes).items() if count > 1}
    if verbosity > 0:
        for outcome in outcomes:
            if not outcome.end.is_red:
                _put_line(page, outcome)
                if outcome.fault in several:  # only the cell tells them apart
                    page.say(outcome.cell, first=INDENT, rest=INDENT + "  ")
    for outcome in outcomes:
        if outcome.end.is_red:
            _put_line(page, outcome)
            if verbosity >= 0:
                page.say(outcome.cell, first=INDENT, rest=INDENT + "  ")
                page.say(outcome.reason, first=INDENT, rest=INDENT + "  ")
                page.command(again(outcome))


def _put_line(page: Page, outcome: Outcome) -> None:
    name = page.clean(outcome.fault)
    text = f"{name:<{NAME}}  {outcome.caught_by}  {outcome.seconds:.1f} s"
    style = STYLES[outcome.end]
    line = f"{outcome.end.value:<{LABEL}}  {text}"
    if cell_len(line) <= page.width:
        page.spans([(line, style)])
    else:
        page.say(text, first=f"{outcome.end.value:<{LABEL}}  ", rest=INDENT + "  ", style=style)


def put_end(page: Page, outcomes: Sequence[Outcome], seconds: float, code: int, meaning: str, where: str) -> None:
    """Totals, why faults were skipped, where the rest stands, and the exit code."""
    page.blank()
    counts = Counter(one.end for one in outcomes)
    totals = ", ".join(f"{counts[end]} {WORDS.get(end, end.value)}" for end in End if counts[end])
    faults, cells = len({one.fault for one in outcomes}), len({(one.fault, one.cell) for one in outcomes})
    page.say(f"{_many(faults, 'fault')} in {_many(cells, 'cell')}: {totals}; {seconds:.0f} s")
    for reason, count in sorted(Counter(one.reason for one in outcomes if one.end is End.SKIPPED).items()):
        page.say(f"skipped, {count}: {reason}")
    page.say(f"reports: {where}")
    page.say(f"exit code {code}: {meaning}", style="green" if code == 0 else "bold red")


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def as_json(outcomes: Sequence[Outcome], facts: Mapping[str, Any]) -> str:
    """The whole selftest for scripts: ``facts`` of the run, then an entry for each fault in each cell."""
    rows = [{**asdict(outcome), "end": outcome.end.value} for outcome in outcomes]
    return json.dumps({"schema_version": SCHEMA_VERSION, **facts, "outcomes": rows}, indent=1) + "\n"


def plan_lines(page: Page, pairs: Sequence[tuple[str, str, str]]) -> None:
    """(fault, check, cell) for ``--plan``."""
    for fault, check, cell in pairs:
        page.say(f"{fault}: {check}", rest="  ")
        page.say(cell, first="  ", rest="    ")
