"""The matrix table on a terminal page, at any width."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from harness.report.marks import LEGEND, Mark
from harness.report.page import Page
from harness.report.table import Row, Table
from harness.report.textfit import JOINT, wrap

MAX_TABLES = 8
MIN_LABEL = 14
ROOMY_LABEL = 40  # cells for the names of rows beyond which heads are not broken to make more room


def put_tables(page: Page, tables: Sequence[Table], *, limit: int = MAX_TABLES) -> None:
    """All tables, those with reds first where there are more than ``limit``, and the whole legend."""
    shown: Sequence[Table] = tables
    if len(tables) > limit:
        shown = sorted(tables, key=lambda table: not table.reds)[:limit]
    for table in shown:
        _put_table(page, table)
        page.blank()
    if len(shown) < len(tables):
        left = [table for table in tables if table not in shown]
        with_reds = sum(bool(table.reds) for table in left)
        page.say(f"{len(left)} more tables ({with_reds} with reds) are in report.html.")
        page.blank()
    page.flow([f"{mark.letter} {mark.words}" for mark in LEGEND], first="Marks: ", rest="       ", gap="   ")


def _put_table(page: Page, table: Table) -> None:
    page.say(table.title, rest="  ", style="bold")
    lines = _row_lines(table)
    grid = _fitting_grid(page, table, [label for label, _ in lines])
    if grid is None:
        _put_list(page, table, lines)
    else:
        _put_grid(page, table, lines, grid)
    _explain(page, table)


def _row_lines(table: Table) -> list[tuple[str, Row | None]]:
    """(label, row whose marks stand beside it) for each line; the programs of one case stand below its name."""
    lines: list[tuple[str, Row | None]] = []
    brief = table.brief()
    for (first, *rest), row in brief:
        is_group = bool(rest) and sum(shown[0] == first for shown, _ in brief) > 1
        if is_group and not any(label == first for label, _ in lines):
            lines.append((first, None))
        label = [one for one in rest if one]
        lines.append(("  " + ", ".join(label) if is_group else ", ".join([first, *label]), row))
    return lines


@dataclass(frozen=True)
class _Grid:
    """``heads`` are the lines of each column's head, all equally many; widths are in terminal cells."""

    label: int
    widths: tuple[int, ...]
    heads: tuple[tuple[str, ...], ...]
    gap: int


def _fitting_grid(page: Page, table: Table, labels: Sequence[str]) -> _Grid | None:
    """The widest layout that leaves the labels room, else the narrowest; None where that is too wide too.

    Heads are broken at the joints of their names before labels are.
    """
    longest = max(map(cell_len, labels))
    marks = [max(cell_len(table.text(row, column)) for row in table.rows) for column in table.columns]
    names = [page.clean(column) for column in table.columns]
    widest = max(map(cell_len, names))
    narrowest = max(cell_len(part) for name in names for part in JOINT.split(name))
    for limit, gap in itertools.product(range(widest, narrowest - 1, -1), (2, 1)):
        heads = [_broken(name, limit) for name in names]
        widths = [max(width, *map(cell_len, head)) for width, head in zip(marks, heads, strict=True)]
        room = page.width - sum(widths) - gap * len(widths)
        if room >= min(longest, ROOMY_LABEL) or ((limit, gap) == (narrowest, 1) and room >= MIN_LABEL):
            height = max(map(len, heads))
            padded = tuple(("",) * (height - len(head)) + tuple(head) for head in heads)
            return _Grid(min(room, longest), tuple(widths), padded, gap)
    return None


def _broken(name: str, width: int) -> list[str]:
    """A name in lines of at most ``width`` cells, broken behind its joints only."""
    lines = [""]
    for part in JOINT.split(name):
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append(part)
        else:
            lines[-1] += part
    return lines


def _put_grid(page: Page, table: Table, lines: Sequence[tuple[str, Row | None]], grid: _Grid) -> None:
    gap = " " * grid.gap
    for texts in zip(*grid.heads, strict=True):
        heads = [(gap + _padded(text, width), "bold") for text, width in zip(texts, grid.widths, strict=True)]
        page.spans([(" " * grid.label, ""), *heads])
    for label, row in lines:
        indent = " " * (len(label) - len(label.lstrip()))
        first, *others = wrap(page.clean(label), grid.label, first=indent, rest=indent + "  ")
        spans = [(_padded(first, grid.label), "" if row else "bold")]
        for column, width in zip(table.columns if row else (), grid.widths, strict=False):
            pieces = table.pieces(row, column) if row else []
            marks = _mark_spans(table, pieces)
            filled = sum(cell_len(text) for text, _ in marks)
            spans += [(gap, ""), *marks, (" " * (width - filled), "")]
        page.spans(spans)
        for other in others:
            page.spans([(other, "")])


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _mark_spans(table: Table, pieces: Sequence[tuple[str, Mark]]) -> list[tuple[str, str]]:
    spans: list[tuple[str, str]] = []
    for text, mark in pieces:
        if spans:
            spans.append((table.separator, ""))
        spans.append((text, mark.style))
    return spans


def _put_list(page: Page, table: Table, lines: Sequence[tuple[str, Row | None]]) -> None:
    """The same table as a list, for many columns or a narrow terminal."""
    for label, row in lines:
        indent = " " * (len(label) - len(label.lstrip()))
        page.say(label, first=indent, rest=indent + "  ", style="" if row else "bold")
        if row:
            marks = [f"{column} {table.text(row, column)}" for column in table.columns]
            page.flow(marks, first=indent + "    ", rest=indent + "    ", gap="   ")


def _explain(page: Page, table: Table) -> None:
    if table.counted:
        page.say(f"Each position counts its cells by mark; {', '.join(table.slot_axes)} vary within it.", rest="  ")
    elif table.explained():
        page.flow(table.explained(), first="In each position, left to right: ", rest="  ", gap=", ")
