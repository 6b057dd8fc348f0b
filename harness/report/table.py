"""The matrix table: rows are recipes, columns nestings, one mark a cell.

Cells that fall into one position stand side by side in a fixed order, which is explained above the table; where they
are too many to read, the position holds counts. Tables are split by case, provider and architecture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.report.marks import NOT_PLANNED, Mark, mark_of
from harness.report.predicate import axis_text
from harness.types import CellResult

TITLE_AXES = ("case", "provider", "arch")
ROW_AXIS, COLUMN_AXIS = "recipe", "nesting"
MAX_SLOTS = 8

Slot = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """``slot_axes`` name the values of every slot in ``slots``; ``cells`` maps (row, column) to results by slot."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    slot_axes: tuple[str, ...]
    slots: tuple[Slot, ...]
    cells: Mapping[tuple[str, str], Mapping[Slot, CellResult]]

    @property
    def reds(self) -> int:
        return sum(result.verdict.is_red for cell in self.cells.values() for result in cell.values())

    @property
    def counted(self) -> bool:
        """True when positions hold counts: side by side there would be too many marks to read."""
        return len(self.slots) > MAX_SLOTS

    def results(self, row: str, column: str) -> list[CellResult | None]:
        """The position's results in slot order, None where the plan has no cell."""
        cell = self.cells.get((row, column), {})
        return [cell.get(slot) for slot in self.slots]

    def pieces(self, row: str, column: str) -> list[tuple[str, Mark]]:
        """What stands in a position: one letter a slot, or counts with reds first."""
        marks = [mark_of(result) if result else NOT_PLANNED for result in self.results(row, column)]
        if not self.counted:
            return [(mark.letter, mark) for mark in marks]
        counts = Counter(mark for mark in marks if mark is not NOT_PLANNED)
        ordered = sorted(counts, key=lambda mark: (not mark.letter.isalpha(), -counts[mark]))
        return [(f"{counts[mark]}{mark.letter}", mark) for mark in ordered] or [(NOT_PLANNED.letter, NOT_PLANNED)]

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


def build_tables(results: Sequence[CellResult]) -> list[Table]:
    """One table for every case, provider and architecture, in plan order. Every result stands in exactly one."""
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for result in results:
        groups.setdefault(tuple(_value(result, axis) for axis in TITLE_AXES), []).append(result)
    return [_table(group) for group in groups.values()]


def _value(result: CellResult, axis: str) -> str:
    return axis_text(result.axes.get(axis, ""))


def _table(results: Sequence[CellResult]) -> Table:
    fixed = (*TITLE_AXES, ROW_AXIS, COLUMN_AXIS)
    axes = dict.fromkeys(axis for result in results for axis in result.axes if axis not in fixed)
    values = {axis: _distinct(results, axis) for axis in axes}
    slot_axes = tuple(axis for axis in axes if len(values[axis]) > 1)
    cells: dict[tuple[str, str], dict[Slot, CellResult]] = {}
    for result in results:
        slot = tuple(_value(result, axis) for axis in slot_axes)
        cells.setdefault((_value(result, ROW_AXIS), _value(result, COLUMN_AXIS)), {})[slot] = result
    used = {slot for cell in cells.values() for slot in cell}
    return Table(
        title=_title(results[0]),
        rows=_distinct(results, ROW_AXIS),
        columns=_distinct(results, COLUMN_AXIS),
        slot_axes=slot_axes,
        slots=tuple(_in_order(used, [values[axis] for axis in slot_axes])),
        cells=cells,
    )


def _in_order(used: set[Slot], values: Sequence[tuple[str, ...]]) -> list[Slot]:
    """Slots that hold a cell somewhere in the table, by the axes' own order of values."""
    ranks = [{value: rank for rank, value in enumerate(axis_values)} for axis_values in values]
    return sorted(used, key=lambda slot: [rank[value] for rank, value in zip(ranks, slot, strict=True)])


def _distinct(results: Sequence[CellResult], axis: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_value(result, axis) for result in results))


def _title(result: CellResult) -> str:
    parts = [f"{axis} {_value(result, axis)}" for axis in TITLE_AXES]
    resolved = f" ({result.arch})" if result.arch and result.arch != _value(result, "arch") else ""
    return ", ".join(parts) + resolved
