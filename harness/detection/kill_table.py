"""The kill matrix in words: fault by check, check by fault, and what has to be done about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.detection.command import by_machine, environment, not_looked_at
from harness.detection.journal import Journal
from harness.detection.kill_measure import Killed
from harness.faults import FAULTS
from harness.judge.calibrate_table import VERSIONS, table
from harness.judge.verdict import CHECK_NAMES
from harness.registry import load

NOTHING = "**nothing**"

# Checks that turn no seeded fault red by themselves, and why the judge has them all the same.
JUSTIFIED: Mapping[str, str] = {
    "numerics.eager_wrong": "What it catches is a case's own word, gone stale: that eager code is wrong as documented. "
    "A fault would have to mend torch. tests/test_judge_wrong_eager.py turns it red.",
}


@dataclass(frozen=True)
class Row:
    """One fault over its seeds."""

    fault: str
    records: tuple[Killed, ...]

    @property
    def named(self) -> str:
        return self.records[0].named

    @property
    def measured(self) -> bool:
        return not any(one.unavailable for one in self.records)

    @property
    def caught(self) -> int:
        return sum(one.caught for one in self.records)

    def seeing(self) -> Mapping[str, int]:
        """Checks that see it alone, the named one left out, and at how many seeds."""
        counts = {name: sum(name in one.others for one in self.records) for name in CHECK_NAMES}
        return {name: count for name, count in counts.items() if count}

    def wrong(self) -> str:
        return "; ".join(dict.fromkeys(word for one in self.records if (word := wrong(one))))


def wrong(one: Killed) -> str:
    """What is wrong with one record, in words; empty where nothing is."""
    if one.unavailable:
        return ""
    if one.error:
        return f"seed {one.seed}: {one.error}"
    words = []
    if not one.caught:
        words.append(f"`{one.named}` alone is green at seed {one.seed}")
    if one.bare:
        words.append(f"{one.bare} with no check at all at seed {one.seed}")
    if one.dependent:
        words.append(f"another answer alone than in company: {_codes(one.dependent)}")
    return "; ".join(words)


def rows_of(journals: Sequence[Journal[Killed]]) -> list[Row]:
    """A row for each registered fault that was measured, in the order of the registry; a later record replaces one of
    the same seed."""
    found: dict[str, dict[int, Killed]] = {name: {} for name in FAULTS}
    for journal in journals:
        for one in journal.records:
            if one.fault in found:
                found[one.fault][one.seed] = one
    return [Row(name, tuple(seeds.values())) for name, seeds in found.items() if seeds]


@dataclass(frozen=True)
class Kills:
    """One check over all faults: those that it sees alone, and those of them that nothing else sees."""

    check: str
    alone: tuple[str, ...]
    only: tuple[str, ...]


def kills_of(rows: Sequence[Row]) -> list[Kills]:
    """An entry for every check of the judge. A kill counts where it is one at every seed."""
    entries = []
    for check in CHECK_NAMES:
        alone = [row for row in rows if all(check in one.alone for one in row.records)]
        only = [row.fault for row in alone if all(one.alone == (check,) for one in row.records)]
        entries.append(Kills(check, tuple(row.fault for row in alone), tuple(only)))
    return entries


def idle(rows: Sequence[Row]) -> list[str]:
    """Checks that turn no measured fault red by themselves."""
    return [entry.check for entry in kills_of(rows) if not entry.alone]


def work(journals: Sequence[Journal[Killed]], *, part: bool = False) -> list[str]:
    """What is left to do on one machine, a line each. ``part``: only some faults were asked for, which says nothing of
    the others, nor of a check that saw none of these."""
    rows = rows_of(journals)
    lines = [f"`{row.fault}`: {row.wrong()}" for row in rows if row.wrong()]
    if part:
        return lines
    lines += [f"`{name}` was not measured" for name in not_looked_at(journals)]
    dead = [name for name in idle(rows) if name not in JUSTIFIED]
    return lines + [f"`{name}` kills nothing alone: it needs a fault, a justification, or to go" for name in dead]


def section(journals: Sequence[Journal[Killed]]) -> str:
    """The page's section on one machine, of which all journals are.

    Raises:
        ValueError: nothing was measured.
    """
    rows = rows_of(journals)
    here = [row for row in rows if row.measured]
    if not here:
        raise ValueError("nothing was measured")
    blocks = [
        f"## Kill matrix: {journals[0].header.machine}",
        environment(journals, VERSIONS),
        _summary(here),
        _work(work(journals)),
        "### Each fault",
        table(("fault", "named check, alone", "others that see it, each alone"), [_fault_line(row) for row in here]),
        "### Each check",
        table(("check", "kills alone", "faults (bold: only it sees them)"), [_check_line(k) for k in kills_of(here)]),
        "### Checks that kill nothing alone",
        _idle(here),
        "### Not measured here",
        _not_measured(journals, rows),
    ]
    return "\n\n".join(blocks) + "\n"


def _summary(rows: Sequence[Row]) -> str:
    records = [one for row in rows for one in row.records]
    seeds = ", ".join(map(str, sorted({one.seed for one in records})))
    red = sum(row.caught == len(row.records) for row in rows)
    hidden = sum(not row.seeing() for row in rows)
    seconds = sum(one.seconds for one in records)
    return (
        f"{len(rows)} faults, seed {seeds}. **{red} of {len(rows)} are red by the named check alone.** With that check "
        f"removed {len(rows) - hidden} are still seen by another, {hidden} by nothing. {len(records)} cells observed, "
        f"each judged {len(CHECK_NAMES) + 3} times, {seconds / len(records):.1f} s each."
    )


def _work(lines: Sequence[str]) -> str:
    return "Work to do: " + ("none." if not lines else "\n\n" + "\n".join(f"- {line}" for line in lines))


def _fault_line(row: Row) -> Sequence[str]:
    count = len(row.records)
    alone = "red" if row.caught == count else f"**red at {row.caught} of {count} seeds**" if count > 1 else "**green**"
    seeing = row.seeing()
    others = [f"`{name}`" + ("" if seen == count else f" ({seen} of {count})") for name, seen in seeing.items()]
    return f"`{row.fault}`", f"`{row.named}` {alone}", ", ".join(others) or NOTHING


def _check_line(kills: Kills) -> Sequence[str]:
    names = [f"**`{name}`**" if name in kills.only else f"`{name}`" for name in kills.alone]
    return f"`{kills.check}`", str(len(kills.alone)), ", ".join(names) or "–"


def _idle(rows: Sequence[Row]) -> str:
    lines = [(f"`{name}`", JUSTIFIED.get(name, "**none: work to do**")) for name in idle(rows)]
    return table(("check", "why it is there"), lines) if lines else "None."


def _not_measured(journals: Sequence[Journal[Killed]], rows: Sequence[Row]) -> str:
    reasons = {name: why for journal in journals for name, why in journal.header.skipped if name in FAULTS}
    reasons |= {row.fault: row.records[0].unavailable for row in rows if not row.measured}
    reasons |= dict.fromkeys(not_looked_at(journals), "**not asked for**")
    lines = [(f"`{name}`", f"`{load(FAULTS[name]).caught_by}`", why) for name, why in sorted(reasons.items())]
    return table(("fault", "named check", "reason"), lines) if lines else "Nothing."


def sections(journals: Sequence[Journal[Killed]]) -> Mapping[str, str]:
    """The section of each machine."""
    return {machine: section(own) for machine, own in by_machine(journals).items()}


def _codes(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
