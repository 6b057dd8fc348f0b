"""What a selftest prints and writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.report.page import Page
from harness.selftest.outcome import End, Outcome
from harness.types import SCHEMA_VERSION

STYLES: Mapping[End, str] = {
    End.CAUGHT: "green",
    End.SKIPPED: "dim",
    End.MISSED: "bold red",
    End.OTHER: "bold red",
    End.UNPROVED: "bold red",
    End.LOST: "bold red",
}
LABEL = 8  # cells of the widest end
FILE = "selftest.json"


def put_outcomes(page: Page, outcomes: Sequence[Outcome], *, verbosity: int = 0) -> None:
    """A block for each fault, those that were not caught last, where they are seen; -1 shows no others."""
    for outcome in sorted(outcomes, key=lambda one: one.end.is_red):
        if outcome.end.is_red or verbosity >= 0:
            _put(page, outcome, whole=outcome.end.is_red or verbosity > 0)


def _put(page: Page, outcome: Outcome, *, whole: bool) -> None:
    label = outcome.end.value if outcome.end is not End.OTHER else "missed"
    tail = f"  {outcome.caught_by}  {outcome.seconds:.1f} s"
    room = max(page.width - LABEL - len(tail) - 2, len(outcome.fault))
    page.spans([(f"{label:<{LABEL}}  {page.clean(outcome.fault):<{min(room, 34)}}{tail}", STYLES[outcome.end])])
    for text in (outcome.cell, outcome.reason):
        indent = " " * (LABEL + 2)
        if whole:
            page.say(text, first=indent, rest=indent + "  ")
        else:
            page.spans([(indent + page.clean(text), "")])


def put_end(page: Page, outcomes: Sequence[Outcome], seconds: float, code: int, meaning: str, where: str) -> None:
    """Totals, checks that nothing was caught by, where the rest stands, and the exit code."""
    page.blank()
    counts = {end: sum(one.end is end for one in outcomes) for end in End}
    totals = ", ".join(f"{count} {end.value}" for end, count in counts.items() if count)
    faults = len({one.fault for one in outcomes})
    page.say(f"{_many(faults, 'fault')} in {_many(len(outcomes), 'cell')}: {totals}; {seconds:.0f} s")
    for reason in sorted({one.reason for one in outcomes if one.end is End.SKIPPED}):
        count = sum(one.end is End.SKIPPED and one.reason == reason for one in outcomes)
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
