"""Markdown for GitHub: a step summary and a comment.

GitHub drops a step summary of more than 1024 KiB whole, and a comment holds 65,536 characters. What doesn't fit is cut
by whole groups of reds and whole tables, never in the middle, and the text says what was left out. Everything that a
program under test can write stands in code spans or blocks: it can't become a link, a mention or HTML.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from harness.report.baseline import baseline_title
from harness.report.commands import repro_words
from harness.report.evidence import evidence_rows, never_native
from harness.report.groups import Group
from harness.report.marks import LEGEND, duration
from harness.report.run_info import RunInfo
from harness.report.table import Table
from harness.report.textfit import printable, visible
from harness.report.view import View

SUMMARY_LIMIT = 1024 * 1024  # bytes, https://docs.github.com: 1 MiB a step
COMMENT_LIMIT = 65_536  # characters; counted as bytes here, which is never less
RESERVE = 400  # bytes for the sentence on what was left out
MAX_VALUE = 600  # characters of one expected or got
MAX_IDS = 200
MAX_UNMET = 20
_LEGEND = "\nMarks: " + ", ".join(f"`{mark.letter}` {mark.words}" for mark in LEGEND) + "\n"


def summary_markdown(view: View) -> str:
    """For ``$GITHUB_STEP_SUMMARY``: under 1024 KiB."""
    return _markdown(view, SUMMARY_LIMIT - 1)


def comment_markdown(view: View) -> str:
    """For a comment: under 65,536 characters, without lists of ids."""
    return _markdown(view, COMMENT_LIMIT - 1, max_ids=0)


def _markdown(view: View, limit: int, max_ids: int = MAX_IDS) -> str:
    groups = view.groups
    text = "\n".join(_head(view)) + "\n"
    tables = ["\n".join(_table(table)) + "\n" for table in view.tables]
    sections = [
        "\n".join(_group(view.run, number, group, max_ids)) + "\n" for number, group in enumerate(groups, start=1)
    ]
    room = limit - RESERVE - _size(text)
    kept_tables, left_of_half = _fitting(tables, room // 2)
    kept_sections, room = _fitting(sections, room - room // 2 + left_of_half - _size(_LEGEND))
    if kept_tables:
        text += "\n" + "\n".join(kept_tables) + _LEGEND
    if kept_sections:
        text += f"\n### Red: {sum(len(group.members) for group in groups)} cells, {len(groups)} causes\n\n"
        text += "\n".join(kept_sections)
    left = [
        f"{count} {noun if count == 1 else nouns}"
        for count, noun, nouns in (
            (len(sections) - len(kept_sections), "cause of red cells", "causes of red cells"),
            (len(tables) - len(kept_tables), "table", "tables"),
        )
        if count
    ]
    if left:
        text += f"\n**Left out, to stay under GitHub's size limit: {' and '.join(left)}.** See report.html.\n"
    return text


def _fitting(parts: Sequence[str], room: int) -> tuple[list[str], int]:
    """The leading parts that fit into ``room`` bytes, and the room left."""
    kept: list[str] = []
    for part in parts:
        if _size(part) + 1 > room:
            break
        kept.append(part)
        room -= _size(part) + 1
    return kept, room


def _size(text: str) -> int:
    return len(text.encode("utf-8"))


def _head(view: View) -> Iterator[str]:
    run, results = view.run, view.results
    word = "as expected" if run.exit_code == 0 else "NOT as expected"
    yield f"## {_code(view.name)}: {word}"
    yield ""
    yield f"{len(results)} cells in {duration(run.seconds)}; exit code {run.exit_code}: {_plain(view.meaning)}."
    yield ""
    yield (
        ", ".join(f"{count} {verdict}" for verdict, count in view.totals.by_verdict.items() if count) or "Nothing ran."
    )
    yield ""
    yield "| evidence | pass | refused | unjudged | red | other | cells |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in evidence_rows(results):
        numbers = (row.passed, row.refused, row.unjudged, row.reds, row.other, row.cells)
        yield f"| {row.level} | {' | '.join(map(str, numbers))} |"
    yield ""
    unmet = view.unmet
    yield f"Require {_code(run.require)}: {'**not met**' if unmet else 'met'}."
    yield from (f"- {_code(text)}" for text in unmet[:MAX_UNMET])
    if len(unmet) > MAX_UNMET:
        yield f"- and {len(unmet) - MAX_UNMET} more"
    yield from (f"- {_code(text)}" for text in view.only_quarantined[:MAX_UNMET])
    if run.baseline:
        yield ""
        worse = "**Worse than the baseline.** " if view.worse else ""
        yield worse + _code(baseline_title(run.baseline, len(results)))
        yield from (f"- {_code(text)}" for text in view.worse[:MAX_UNMET])
        if len(view.worse) > MAX_UNMET:
            yield f"- and {len(view.worse) - MAX_UNMET} more"
        yield from (f"- {_code(text)}" for text in view.beside_baseline[:MAX_UNMET])
    if view.audited:
        yield ""
        yield "**The audit found that what is reported is not what was recorded.**"
        yield from (f"- {_code(text)}" for text in view.audited[:MAX_UNMET])
        if len(view.audited) > MAX_UNMET:
            yield f"- and {len(view.audited) - MAX_UNMET} more"
    yield from (f"\n{_plain(line)}" for line in never_native(results))
    yield ""
    yield ", ".join(f"{name} {_code(version)}" for name, version in {**run.versions, **run.host}.items() if version)


def _table(table: Table) -> Iterator[str]:
    yield f"**{_plain(table.title)}**"
    yield ""
    yield "| " + " | ".join([*table.row_axes, *map(_cell, table.columns)]) + " |"
    yield "|" + " --- |" * (len(table.row_axes) + len(table.columns))
    for shown, row in table.brief():
        names = [_cell(part) if part and part in row else _plain(part) for part in shown]
        marks = [_cell(table.text(row, column)) for column in table.columns]
        yield "| " + " | ".join([*names, *marks]) + " |"
    if table.explained():
        yield ""
        yield "In each position, left to right: " + "; ".join(_code(text) for text in table.explained())
    elif table.counted:
        yield ""
        yield f"Each position counts its cells by mark; {', '.join(table.slot_axes)} vary within it."


def _group(run: RunInfo, number: int, group: Group, max_ids: int) -> Iterator[str]:
    first = group.representative
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in group.verdicts.items())
    yield f"#### {number}. {_code(group.check)}: {verdicts}{'' if group.gates else ' (quarantined)'}"
    yield ""
    for name, value in group.facts():
        yield f"- {name}: {_code(value)}"
    yield ""
    yield _block(shlex.join(repro_words(run, first)), "sh")
    if len(group.members) > 1 and max_ids:
        ids = [member.id for member in group.members[:max_ids]]
        more = len(group.members) - len(ids)
        yield f"<details><summary>all {len(group.members)} cells</summary>"
        yield ""
        yield _block("\n".join(ids) + (f"\nand {more} more" if more else ""))
        yield ""
        yield "</details>"


def _code(text: str) -> str:
    """A code span of one line; its fence is longer than any run of backticks inside."""
    text = printable(text)
    text = text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 3] + "..."
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _cell(text: str) -> str:
    """A code span in a table, where a vertical bar would end the cell even inside code."""
    return _code(text).replace("|", "\\|")


def _block(text: str, language: str = "") -> str:
    text = "\n".join(visible(line) for line in text.split("\n"))
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _plain(text: str) -> str:
    """Text outside code: what Markdown or GitHub would act on is escaped."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|@~&])", r"\\\1", printable(text))
