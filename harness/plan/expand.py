"""From a matrix to its plan: ids, expectations, and where each setting came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.plan.axes import spell
from harness.plan.case_rules import Misfit
from harness.plan.drafts import Draft, Source, draft_overridden, size_is_allowed
from harness.plan.errors import SelectionError
from harness.plan.ids import cell_id, check_axis, inner_of, read_value
from harness.plan.matching import Matcher, PatternMap, matches, matches_somewhere, why_none
from harness.plan.models import BudgetEntry, ExpectEntry, RaisesEntry, WaiverEntry, pattern_of, spelled
from harness.plan.types import Matrix, Plan, make_plan
from harness.plan.yamlfile import Place
from harness.types import Axes, Budgets, Cell, Expectation, Raises, Waiver

UnfitDraft = tuple[Draft, Misfit]


def expand(matrix: Matrix, overrides: Mapping[str, Sequence[str]] | None = None) -> Plan:
    """The plan of a matrix, its cells in a fixed order.

    ``overrides`` maps an axis to the spellings of its values (``--set AXIS=V,V``). It takes the place of that axis
    under ``matrix``, ``defaults``, ``include`` and ``adjust``, before any entry is applied; cells that become alike are
    one cell. Entries that match nothing because of it are no errors: they were judged against the file as written.
    Combinations that a case has no program for are left out, and the plan's notes say so.

    Raises:
        SelectionError: an unknown axis or value in ``overrides``, a value that no case of the matrix has a program for,
            or more cells than a matrix may have.
    """
    if not overrides:
        return matrix.full
    values = {axis: _override(axis, spellings) for axis, spellings in overrides.items()}
    source = Source(matrix.model, matrix.data, values)
    if not size_is_allowed(source):
        raise SelectionError(f"--set: {source.problems[0].message}")
    drafts, misfits = draft_overridden(source)
    _check_used(values, drafts, misfits)
    cells = finish_cells(source, drafts)
    return make_plan(matrix.name, matrix.path, matrix.require, cells, _left_out(misfits))


def _check_used(overrides: Mapping[str, Sequence[Any]], drafts: Sequence[Draft], misfits: Sequence[UnfitDraft]) -> None:
    """Raise SelectionError for a value that is in no cell because no case has a program for it."""
    for axis, values in overrides.items():
        for value in values:
            unfit = next((misfit for draft, misfit in misfits if draft.values[axis] == value), None)
            if unfit is not None and not any(draft.values[axis] == value for draft in drafts):
                near = (unfit.nearest,) if unfit.nearest else ()
                raise SelectionError(f"--set {axis}={spell(value)}: {unfit.message}", near)


def _left_out(misfits: Sequence[UnfitDraft]) -> tuple[str, ...]:
    """A note on the cells that ``--set`` asked for and that their cases have no program for."""
    if not misfits:
        return ()
    first, *others = dict.fromkeys(misfit.message for _, misfit in misfits)
    more = f"; {len(others)} more like it" if others else ""
    return (f"--set left out {len(misfits)} cell{'s' if len(misfits) > 1 else ''}: {first}{more}",)


def _override(axis: str, spellings: Sequence[str]) -> list[Any]:
    check_axis(axis, "--set")
    if not spellings:
        raise SelectionError(f"--set {axis}=: at least one value is needed")
    return [read_value(axis, text, "--set") for text in spellings]


def finish_cells(source: Source, drafts: Sequence[Draft]) -> list[Cell]:
    """Cells with their expectations; an expect or waiver that matches none of them is blamed in ``source``."""
    cells = [_Finished(draft) for draft in drafts]
    for cell in cells:
        _give_budgets(cell, source.model.budgets, source, "budgets")
    for index, entry in enumerate(source.model.expect):
        _apply_expect(cells, entry, index, source)
    for index, waiver in enumerate(source.model.waivers):
        _apply_waiver(cells, waiver, index, source)
    return [cell.as_cell() for cell in cells]


@dataclass
class _Finished:
    """A draft together with what is expected of it so far."""

    draft: Draft
    budgets: Budgets = field(default_factory=Budgets)
    raises: Raises | None = None
    waivers: tuple[Waiver, ...] = ()

    def as_cell(self) -> Cell:
        axes = Axes(**self.draft.values)
        inner = inner_of(axes)
        origin = {f"budgets.{name}": "schema default" for name in BudgetEntry.model_fields}
        if inner is not None:
            origin["inner"] = "partner table"
        origin.update({name: str(text) for name, text in self.draft.origin.items()})
        return Cell(cell_id(axes), axes, inner, Expectation(self.budgets, self.raises, self.waivers), origin)


def _give_budgets(cell: _Finished, entry: BudgetEntry, source: Source, what: str, *loc: str | int) -> None:
    given = {name: getattr(entry, name) for name in BudgetEntry.model_fields if name in entry.model_fields_set}
    cell.budgets = Budgets(**{**vars(cell.budgets), **given})
    for name in given:
        cell.draft.origin[f"budgets.{name}"] = source.origin(what, *loc, "budgets", name)


def _apply_expect(cells: Sequence[_Finished], entry: ExpectEntry, index: int, source: Source) -> None:
    pattern = pattern_of(entry.when)
    hit = [cell for cell in cells if matches(cell.draft.values, pattern)]
    if not hit:
        _blame_idle(source, source.place("expect", index), "expect matches no cell", pattern, cells, matches)
    for cell in hit:
        if "budgets" in entry.model_fields_set:
            _give_budgets(cell, entry.budgets, source, f"expect[{index}]", "expect", index)
        if "raises" in entry.model_fields_set:
            cell.raises = _raises(entry.raises)
            cell.draft.origin["raises"] = source.origin(f"expect[{index}]", "expect", index, "raises")


def _apply_waiver(cells: Sequence[_Finished], entry: WaiverEntry, index: int, source: Source) -> None:
    pattern = pattern_of(entry.when)
    waiver = _waiver(entry, pattern, str(source.place("waivers", index)))
    hit = [cell for cell in cells if matches_somewhere(cell.draft.values, pattern)]
    if not hit:
        what = "waiver matches no cell on any machine"
        _blame_idle(source, source.place("waivers", index), what, pattern, cells, matches_somewhere)
    for cell in hit:
        cell.draft.origin[f"waivers[{len(cell.waivers)}]"] = source.origin("waivers", "waivers", index)
        cell.waivers += (waiver,)


def _blame_idle(
    source: Source, place: Place, what: str, pattern: PatternMap, cells: Sequence[_Finished], meets: Matcher
) -> None:
    """Entries for nothing are errors: they are typos, or know of cells that no longer exist."""
    if source.is_sound("matrix", "defaults", "include", "adjust"):
        source.blame(place, f"this {what}: {why_none(pattern, [cell.draft.values for cell in cells], meets)}")


def _raises(entry: RaisesEntry) -> Raises:
    return Raises(entry.type, entry.match, entry.phase)


def _waiver(entry: WaiverEntry, pattern: dict[str, tuple[Any, ...]], where: str) -> Waiver:
    versions = entry.versions if "versions" in entry.model_fields_set else None
    ranges = tuple((name, getattr(versions, name)) for name in versions.model_fields_set) if versions else ()
    return Waiver(
        kind=entry.kind,
        reason=entry.reason,
        url=entry.url or "",
        owner=entry.owner,
        expires=entry.expires,
        versions=tuple(sorted(ranges)),
        where=where,
        when=spelled(pattern),
        checks=tuple(entry.checks or ()),
    )
