"""From settings to cells: the matrix, its overrides, and which of its cells are taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.cli.errors import NothingToRun, UsageError
from harness.cli.option import Settings
from harness.plan import Plan, PlanError, Selection, expand, load_matrix, select
from harness.plan.select import why_nothing
from harness.plan.targets import check_targets
from harness.types import Cell


def planned(settings: Settings) -> Plan:
    """The full plan of the matrix, with --set applied.

    Raises:
        UsageError: all that is wrong with the matrix, with file:line:column; targets that can't be there too.
    """
    try:
        matrix = load_matrix(settings["matrix"])
        return check_targets(matrix, expand(matrix, by_axis(settings["overrides"])))
    except PlanError as error:
        raise UsageError(str(error)) from error


def by_axis(pairs: Iterable[tuple[str, tuple[str, ...]]]) -> Mapping[str, tuple[str, ...]]:
    """Values by axis; those of an axis that is named twice add up."""
    found: dict[str, tuple[str, ...]] = {}
    for axis, values in pairs:
        found[axis] = found.get(axis, ()) + values
    return found


def chosen_cells(plan: Plan, settings: Settings, last_failed: frozenset[str] | None) -> tuple[Cell, ...]:
    """The cells to run.

    Raises:
        UsageError: an unknown id, axis or value.
        NothingToRun: no cell is left.
    """
    selection = Selection(
        cells=settings["cells"],
        select=by_axis(settings["select"]),
        keyword=settings["keyword"] or "",
        providers=settings["providers"],
        shard=settings["shard"],
        last_failed=last_failed,
        shuffle=settings["shuffle"],
    )
    try:
        cells = select(plan, selection)
    except PlanError as error:
        raise UsageError(str(error)) from error
    if not cells:
        if last_failed is not None and not last_failed:
            raise NothingToRun(f"no cell of {plan.path} was red when it last ran")
        raise NothingToRun(why_nothing(plan, selection))
    return cells
