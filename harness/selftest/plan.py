"""From a selftest file to faults in cells, and the same cells without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.faults import FRONT_FAULTS
from harness.faults.cell import crossed
from harness.faults.fault import Fault
from harness.faults.front import FrontFault
from harness.plan.errors import MatrixError, MatrixErrors
from harness.plan.yamlfile import YamlMap
from harness.providers.load import load_fault
from harness.registry import load
from harness.selftest.models import CrossEntry, axes_of, read_selftest
from harness.types import Cell

# Checks of the layer that runs cells: a process that has ended can't be asked by another.
OF_PROCESSES = "run."


@dataclass(frozen=True)
class Seeded:
    """A fault in a cell where it must show, and that cell without it. ``caught_by``: the check that must turn red."""

    fault: str
    breaks: str
    caught_by: str
    cell: Cell
    twin: Cell
    needs: str = ""
    report: str = ""


@dataclass(frozen=True)
class Selftest:
    """``path``: the file as it was found; ``front``: faults of the harness's own front, which have no cell."""

    path: str
    seeded: tuple[Seeded, ...]
    front: tuple[FrontFault, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell once: those that end their process first, so that the wait for a hang overlaps the others."""
        ordered = sorted(self.seeded, key=lambda one: not one.caught_by.startswith(OF_PROCESSES))
        return tuple({cell.id: cell for one in ordered for cell in (one.cell, one.twin)}.values())


def plan_selftest(path: str | Path, only: Sequence[str] = ()) -> Selftest:
    """The selftest at ``path``, or the part of it that concerns the faults ``only`` (which the file needn't name).

    Raises:
        MatrixErrors: everything that is wrong with the file.
        LoadError: a fault's module can't be imported.
    """
    model, data, file = read_selftest(path)
    wanted = only or model.faults
    names = [name for name in wanted if name not in FRONT_FAULTS]
    front = tuple(load(FRONT_FAULTS[name]) for name in wanted if name in FRONT_FAULTS)
    faults = {name: load_fault(name) for name in [*names, *(entry.fault for entry in model.cross)]}
    errors: list[MatrixError] = []
    seeded = [one for name in names for one in _own(name, faults[name], file, errors)]
    for index, entry in enumerate(model.cross):
        if entry.fault in names:
            seeded += _crossed(entry, index, faults[entry.fault], data, errors)
    if errors:
        raise MatrixErrors(errors)
    return Selftest(file, _distinct(seeded), front)


def _own(name: str, fault: Fault, file: str, errors: list[MatrixError]) -> Iterable[Seeded]:
    try:
        pairs = crossed(fault, {}, name)
    except MatrixErrors as error:
        told = "; ".join(one.message for one in error.errors)
        errors.append(MatrixError(file, 0, 0, f"fault {name}: its cell (where) can't be planned: {told}"))
        return ()
    if len(pairs) != 1:
        errors.append(MatrixError(file, 0, 0, f"fault {name}: where names {len(pairs)} cells, one is needed"))
        return ()
    return [_seeded(name, fault, *pairs[0])]


def _crossed(entry: CrossEntry, index: int, fault: Fault, data: YamlMap, errors: list[MatrixError]) -> Iterable[Seeded]:
    try:
        pairs = crossed(fault, _written(axes_of(entry)), entry.fault)
    except MatrixErrors as error:
        cross = data["cross"]
        place = cross[index].place  # type: ignore[index, union-attr]  # the models have seen a list of mappings
        what = f"{entry.fault} can't be crossed so"
        errors += [place.error(f"{what}: {one.message}", one.nearest) for one in error.errors]
        return ()
    caught_by = entry.caught_by or fault.caught_by
    return [_seeded(entry.fault, fault, *pair, caught_by=caught_by) for pair in pairs]


def _seeded(name: str, fault: Fault, cell: Cell, twin: Cell, caught_by: str = "") -> Seeded:
    return Seeded(name, fault.breaks, caught_by or fault.caught_by, cell, twin, fault.needs, fault.report)


def _written(axes: Mapping[str, Any]) -> dict[str, Any]:
    """Validated values as JSON holds them."""
    return {name: [_plain(value) for value in values] for name, values in axes.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "as_dict"):
        return {"name": value.name, **value.as_dict()}
    return list(value) if isinstance(value, tuple) else value


def _distinct(seeded: Iterable[Seeded]) -> tuple[Seeded, ...]:
    """A cell that is named twice is looked at once; the first says which check."""
    found: dict[str, Seeded] = {}
    for one in seeded:
        found.setdefault(one.cell.id, one)
    return tuple(found.values())
