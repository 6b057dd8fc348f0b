"""``--plan``: the cells, and where each of their settings came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from harness.plan.axes import AXES, spell
from harness.types import Cell

_WIDTH = 80


def render_plan(cells: Sequence[Cell], verbose: bool = False) -> str:
    """The plan as text for 80 columns; only ids may be longer, because they are there to be copied.

    Without ``verbose``: each setting once, with its values, how many cells have each, and where they came from; then
    the ids. With ``verbose``: every cell with all of its settings.
    """
    if not cells:
        return "no cells"
    lines = _each_cell(cells) if verbose else [*_settings_table(cells), "", *(cell.id for cell in cells)]
    count = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}"
    return "\n".join([*lines, "", count])


def _settings(cell: Cell) -> Iterator[tuple[str, str, str]]:
    """(setting, value, origin) of a cell: axes in schema order, budgets, expected error, waivers."""
    values: dict[str, str] = {}
    for axis in AXES:
        if getattr(cell.axes, axis) != "":  # a case without variants or target has nothing to show there
            values[axis] = spell(getattr(cell.axes, axis))
        if axis == "nesting" and cell.inner is not None:
            values["inner"] = cell.inner.label
    for name, value in vars(cell.expect.budgets).items():
        values[f"budgets.{name}"] = _budget_text(name, value)
    for name, value in vars(cell.expect.baseline).items() if cell.expect.baseline else ():
        if value is not None:
            values[f"limits.{name}"] = f"at most {value}"
    if cell.expect.raises is not None:
        raises = cell.expect.raises
        values["raises"] = f"{raises.phase}: {raises.type} /{raises.match}/"
    for index, waiver in enumerate(cell.expect.waivers):
        values[f"waivers[{index}]"] = f"{waiver.kind} until {waiver.expires}: {waiver.reason}"
    for name, value in values.items():
        yield name, value, cell.origin.get(name, "")


def _budget_text(name: str, value: int | None) -> str:
    if value is not None:
        return str(value)
    return "as the case says" if name == "graphs" else "not judged"


def _settings_table(cells: Sequence[Cell]) -> Iterator[str]:
    counts = Counter(setting for cell in cells for setting in _settings(cell))
    order = {name: index for index, name in enumerate(_names(cells))}
    yield f"{'setting':<20} {'cells':>5}  value  <- from"
    previous = ""
    for (name, value, origin), count in sorted(counts.items(), key=lambda item: order[item[0][0]]):
        head = f"{'' if name == previous else name:<20} {count:>5}  "
        yield from _row(head, value, origin)
        previous = name


def _names(cells: Iterable[Cell]) -> list[str]:
    """All settings that occur, in the order in which a cell that had all of them would list them."""
    found = dict.fromkeys(name for cell in cells for name, _, _ in _settings(cell))
    axes = list(AXES)
    axes.insert(axes.index("nesting") + 1, "inner")
    return [*axes, *(name for name in found if name not in axes)]


def _each_cell(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        yield cell.id
        for name, value, origin in _settings(cell):
            yield from _row(f"  {name:<20} ", value, origin)


def _row(head: str, value: str, origin: str) -> Iterator[str]:
    """One line where it fits in 80 columns, else the origin on a line of its own; long values are cut."""
    source = f"<- {origin}" if origin else ""
    if len(head) + len(value) + len(source) + 2 <= _WIDTH:
        yield f"{head}{value}{' ' * (_WIDTH - len(head) - len(value) - len(source))}{source}".rstrip()
        return
    room = _WIDTH - len(head)
    yield head + (value if len(value) <= room else value[: room - 1] + "…")
    yield f"{source:>{_WIDTH}}"
