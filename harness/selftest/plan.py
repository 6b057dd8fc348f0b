"""From a selftest file to faults in cells, and the same cells without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.faults import FRONT_FAULTS
from harness.faults.cell import crossed
from harness.faults.fault import Fault, check_dies
from harness.faults.front import FrontFault
from harness.plan.errors import MatrixError, MatrixErrors
from harness.plan.explain import place_at
from harness.plan.yamlfile import YamlMap
from harness.providers.load import split_faults
from harness.registry import load
from harness.selftest.fault_fields import planned
from harness.selftest.models import CrossEntry, SelftestModel, axes_of, read_selftest
from harness.selftest.user_faults import asked_for, at_fault, loaded
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
    dies: str = ""


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
        MatrixErrors: everything that is wrong with the file, with ``only`` and with the faults.
    """
    model, data, file = read_selftest(path)
    errors: list[MatrixError] = []
    wanted = asked_for(only, errors) if only else model.faults
    names = [name for name in wanted if name not in FRONT_FAULTS]
    errors += _not_among(model, data)
    faults = loaded(names, data, errors)
    seeded = [one for name, fault in faults.items() for one in _own(name, fault, errors)]
    for index, entry in enumerate(model.cross):
        if entry.fault in faults:
            seeded += _crossed(entry, index, faults[entry.fault], data, errors)
    if errors:
        raise MatrixErrors(errors)
    front = tuple(load(FRONT_FAULTS[name]) for name in dict.fromkeys(wanted) if name in FRONT_FAULTS)
    return Selftest(file, _distinct(seeded), front)


def _not_among(model: SelftestModel, data: YamlMap) -> Iterable[MatrixError]:
    """Entries of ``cross`` that would be run for nobody."""
    for index, entry in enumerate(model.cross):
        if entry.fault not in model.faults:
            yield place_at(data, ("cross", index, "fault")).error(f"{entry.fault} is not among faults")


def _own(name: str, fault: Fault, errors: list[MatrixError]) -> Iterable[Seeded]:
    pair, wrong = planned(fault, name)
    errors += [at_fault(name, message, near) for message, near in wrong]
    if not pair:
        return ()
    errors += [at_fault(name, message) for message in _cannot_be(fault, fault.caught_by, pair[:1])]
    return [_seeded(name, fault, *pair)]


def _crossed(entry: CrossEntry, index: int, fault: Fault, data: YamlMap, errors: list[MatrixError]) -> Iterable[Seeded]:
    try:
        pairs = crossed(fault, _written(axes_of(entry)), entry.fault)
    except MatrixErrors as error:
        place = place_at(data, ("cross", index))
        what = f"{entry.fault} can't be crossed so"
        errors += [place.error(f"{what}: {one.message}", one.nearest) for one in error.errors]
        return ()
    except (TypeError, ValueError):
        return ()  # of the fault's own cell, which was told
    caught_by = entry.caught_by or fault.caught_by
    for message in _cannot_be(fault, caught_by, [cell for cell, _ in pairs]):
        errors.append(place_at(data, ("cross", index)).error(f"{entry.fault} can't be crossed so: {message}"))
    return [_seeded(entry.fault, fault, *pair, caught_by=caught_by) for pair in pairs]


def _cannot_be(fault: Fault, caught_by: str, cells: Iterable[Cell]) -> Iterable[str]:
    """Why a fault can't be caught by that check, or in these cells."""
    try:
        check_dies(fault.dies, caught_by)
    except ValueError as error:
        yield str(error)
    bases = dict.fromkeys(split_faults(cell.axes.provider.name)[0] for cell in cells)
    for base in bases:
        if base not in fault.providers:
            yield f"it breaks nothing of {base}, only of {', '.join(fault.providers)}"


def _seeded(name: str, fault: Fault, cell: Cell, twin: Cell, caught_by: str = "") -> Seeded:
    return Seeded(name, fault.breaks, caught_by or fault.caught_by, cell, twin, fault.needs, fault.report, fault.dies)


def _written(axes: Mapping[str, Any]) -> dict[str, Any]:
    """Validated values as JSON holds them."""
    return {name: [_plain(value) for value in values] for name, values in axes.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "as_dict"):
        return {"name": value.name, **value.as_dict()}
    return list(value) if isinstance(value, tuple) else value


def _distinct(seeded: Iterable[Seeded]) -> tuple[Seeded, ...]:
    """A check in a cell once, however often it is named; two checks that are wanted of one cell are both looked at."""
    return tuple({(one.cell.id, one.caught_by): one for one in seeded}.values())
