"""The matrix tables, one mark a cell.

A case that runs in several nestings has a table of its own, rows recipes and columns nestings: its reds differ there.
The others, which have one nesting and may have variants, share an overview: rows cases and their variants, columns
recipes. Providers and architectures are never mixed.

Cells that fall into one position stand side by side in a fixed order, which is explained below the table; where they
are too many to read, the position holds counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.report.marks import NOT_PLANNED, Mark, mark_of
from harness.report.predicate import axis_text
from harness.types import Axes, CellResult

TITLE_AXES = ("case", "provider", "arch")
PROGRAM_AXES = ("variant", "target")  # which program of its case a cell runs: one of the two at most
MAX_SLOTS = 8

Row = tuple[str, ...]
Slot = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """``row_axes`` name the parts of every row in ``rows``, ``slot_axes`` those of every slot in ``slots``.

    ``cells`` maps (row, column) to results by slot. A part of a row is empty where the case has one program only.
    """

    title: str
    row_axes: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    slot_axes: tuple[str, ...]
    slots: tuple[Slot, ...]
    cells: Mapping[tuple[Row, str], Mapping[Slot, CellResult]]

    @property
    def reds(self) -> int:
        return sum(result.verdict.is_red for cell in self.cells.values() for result in cell.values())

    @property
    def counted(self) -> bool:
        """True when positions hold counts: side by side there would be too many marks to read."""
        return len(self.slots) > MAX_SLOTS

    def results(self, row: Row, column: str) -> list[CellResult | None]:
        """The position's results in slot order, None where the plan has no cell."""
        cell = self.cells.get((row, column), {})
        return [cell.get(slot) for slot in self.slots]

    def pieces(self, row: Row, column: str) -> list[tuple[str, Mark]]:
        """What stands in a position: one letter a slot, or counts with reds first."""
        marks = [mark_of(result) if result else NOT_PLANNED for result in self.results(row, column)]
        if not self.counted:
            return [(mark.letter, mark) for mark in marks]
        counts = Counter(mark for mark in marks if mark is not NOT_PLANNED)
        ordered = sorted(counts, key=lambda mark: (not mark.letter.isalpha(), -counts[mark]))
        return [(f"{counts[mark]}{mark.letter}", mark) for mark in ordered] or [(NOT_PLANNED.letter, NOT_PLANNED)]

    def text(self, row: Row, column: str) -> str:
        """A position without colour."""
        return self.separator.join(text for text, _ in self.pieces(row, column))

    @property
    def separator(self) -> str:
        return " " if self.counted else ""

    def explained(self) -> list[str]:
        """The slots in words, numbered from the left; empty when a position holds one cell."""
        if len(self.slots) < 2 or self.counted:
            return []
        return [
            f"{number}: {' '.join(f'{axis}={value}' for axis, value in zip(self.slot_axes, slot, strict=True))}"
            for number, slot in enumerate(self.slots, start=1)
        ]

    def brief(self) -> list[tuple[Row, Row]]:
        """(row as it is to be shown, row whose marks it has): a case's programs that all look alike are one row.

        Such a row reads ``("checkpoint", "6 variants")``: nothing that the marks say is lost.
        """
        if self.row_axes[0] != "case" or len(self.row_axes) == 1:
            return [(row, row) for row in self.rows]
        targets = {row[0] for (row, _), cell in self.cells.items() if value_of(next(iter(cell.values())), "target")}
        shown: list[tuple[Row, Row]] = []
        for case in dict.fromkeys(row[0] for row in self.rows):
            rows = [row for row in self.rows if row[0] == case]
            looks = {tuple(self.text(row, column) for column in self.columns) for row in rows}
            if len(rows) > 1 and len(looks) == 1:
                shown.append(((case, f"{len(rows)} {'targets' if case in targets else 'variants'}"), rows[0]))
            else:
                shown += [(row, row) for row in rows]
        return shown


def build_tables(results: Sequence[CellResult]) -> list[Table]:
    """The tables of a run, by the first cell of each in plan order. Every result stands in exactly one of them."""
    cases: dict[tuple[str, ...], list[CellResult]] = {}
    for result in results:
        cases.setdefault(tuple(value_of(result, axis) for axis in TITLE_AXES), []).append(result)
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for (case, *place), cells in cases.items():
        nestings = _distinct(cells, "nesting")
        key = (*place, nestings[0]) if len(nestings) == 1 else (*place, "", case)
        groups.setdefault(key, []).extend(cells)
    return [_table_of(group) for group in groups.values()]


def _table_of(results: Sequence[CellResult]) -> Table:
    programs = {_values(result, ("case", *PROGRAM_AXES)) for result in results}
    kinds = tuple(axis for axis in PROGRAM_AXES if any(value_of(result, axis) for result in results))
    if len(programs) > 1 and len(_distinct(results, "nesting")) == 1:
        return _table(results, ("case",), kinds, (), "recipe")
    return _table(results, (), kinds if len(programs) > 1 else (), ("recipe",), "nesting")


def _table(results: Sequence[CellResult], head: Row, kinds: Sequence[str], tail: Row, column_axis: str) -> Table:
    """A row is the values of ``head``, the program (where there are ``kinds`` of it), the values of ``tail``."""

    def row_of(result: CellResult) -> Row:
        return (*_values(result, head), *_program(result, kinds), *_values(result, tail))

    fixed = (*TITLE_AXES, *PROGRAM_AXES, *head, *tail, column_axis)
    axes = dict.fromkeys(axis for result in results for axis in result.axes if axis not in fixed)
    values = {axis: _distinct(results, axis) for axis in axes}
    slot_axes = tuple(axis for axis in axes if len(values[axis]) > 1)
    cells: dict[tuple[Row, str], dict[Slot, CellResult]] = {}
    for result in results:
        position = row_of(result), value_of(result, column_axis)
        cells.setdefault(position, {})[_values(result, slot_axes)] = result
    used = {slot for cell in cells.values() for slot in cell}
    return Table(
        title=_title(results),
        row_axes=(*head, *([" or ".join(kinds)] if kinds else []), *tail),
        rows=tuple(dict.fromkeys(map(row_of, results))),
        columns=_distinct(results, column_axis),
        slot_axes=slot_axes,
        slots=tuple(_in_order(used, [values[axis] for axis in slot_axes])),
        cells=cells,
    )


def value_of(result: CellResult, axis: str) -> str:
    """The cell's value of an axis as ids spell it; empty where an older result has none."""
    return axis_text(result.axes.get(axis, ""))


def _values(result: CellResult, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(value_of(result, axis) for axis in axes)


def _program(result: CellResult, kinds: Sequence[str]) -> Row:
    """Which program of its case the cell ran, as one part of a row; no part where there are no ``kinds`` of them."""
    return (" ".join(filter(None, _values(result, kinds))),) if kinds else ()


def _in_order(used: set[Slot], values: Sequence[tuple[str, ...]]) -> list[Slot]:
    """Slots that hold a cell somewhere in the table, by the axes' own order of values."""
    ranks = [{value: rank for rank, value in enumerate(axis_values)} for axis_values in values]
    return sorted(used, key=lambda slot: [rank[value] for rank, value in zip(ranks, slot, strict=True)])


def _distinct(results: Sequence[CellResult], axis: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value_of(result, axis) for result in results))


def _title(results: Sequence[CellResult]) -> str:
    """What all cells of the table share and neither rows nor columns say."""
    shared = {axis: _distinct(results, axis) for axis in ("case", *PROGRAM_AXES, "provider", "arch")}
    parts = [f"{axis} {values[0]}" for axis, values in shared.items() if len(values) == 1 and values[0]]
    arch = results[0].arch
    resolved = f" ({arch})" if arch and (arch,) != shared["arch"] else ""
    nestings = _distinct(results, "nesting")
    nested = f", nesting {nestings[0]}" if len(shared["case"]) > 1 and nestings != (Axes.nesting,) else ""
    return ", ".join(parts) + resolved + nested
