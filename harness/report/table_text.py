"""The matrix table on a terminal page, at any width."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from harness.report.marks import LEGEND, Mark
from harness.report.page import Page
from harness.report.table import Table
from harness.report.textfit import wrap

MAX_TABLES = 8
MIN_LABEL = 14


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
    widths = [_column_width(table, column) for column in table.columns]
    longest = max(map(cell_len, table.rows))
    room = {gap: page.width - sum(widths) - gap * len(widths) for gap in (2, 1)}
    gap = 2 if room[2] >= longest else 1
    if room[gap] >= MIN_LABEL:
        _put_grid(page, table, widths, min(room[gap], longest), gap)
    else:
        _put_list(page, table)
    _explain(page, table)


def _column_width(table: Table, column: str) -> int:
    return max([cell_len(column), *(_marks_width(table, row, column) for row in table.rows)])


def _marks_width(table: Table, row: str, column: str) -> int:
    return len(table.separator.join(text for text, _ in table.pieces(row, column)))


def _put_grid(page: Page, table: Table, widths: Sequence[int], label: int, gap: int) -> None:
    heads = [
        (" " * gap + page.clean(column).ljust(width), "bold")
        for column, width in zip(table.columns, widths, strict=True)
    ]
    page.spans([(" " * label, ""), *heads])
    for row in table.rows:
        first, *others = wrap(page.clean(row), label, rest="  ")
        spans = [(first + " " * (label - cell_len(first)), "")]
        for column, width in zip(table.columns, widths, strict=True):
            spans.append((" " * gap, ""))
            spans += _mark_spans(table, table.pieces(row, column))
            spans.append((" " * (width - _marks_width(table, row, column)), ""))
        page.spans(spans)
        for other in others:
            page.spans([(other, "")])


def _mark_spans(table: Table, pieces: Sequence[tuple[str, Mark]]) -> list[tuple[str, str]]:
    spans: list[tuple[str, str]] = []
    for text, mark in pieces:
        if spans:
            spans.append((table.separator, ""))
        spans.append((text, mark.style))
    return spans


def _put_list(page: Page, table: Table) -> None:
    """The same table as a list, for many columns or a narrow terminal."""
    for row in table.rows:
        page.say(row, rest="  ")
        page.flow(
            [
                f"{column} {table.separator.join(text for text, _ in table.pieces(row, column))}"
                for column in table.columns
            ],
            first="    ",
            rest="    ",
            gap="   ",
        )


def _explain(page: Page, table: Table) -> None:
    if table.counted:
        page.say(f"Each position counts its cells by mark; {', '.join(table.slot_axes)} vary within it.", rest="  ")
    elif table.explained():
        page.flow(table.explained(), first="In each position, left to right: ", rest="  ", gap=", ")
