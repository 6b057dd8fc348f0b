"""In which order cells are started. Reports keep the plan's order."""

from __future__ import annotations

from collections.abc import Sequence

from harness.types import Cell


def expensive_first(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Ids, inductor cells before the others, the plan's order within each.

    A cold inductor cell takes as long as a hundred others (C++ or Triton compilation); started last, it would keep one
    worker busy while the rest have nothing left to do.
    """
    return tuple(cell.id for cell in sorted(cells, key=lambda cell: cell.axes.backend != "inductor"))
