"""From a validated matrix to combinations of axis values: product, exclude, include, adjust, in this order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.plan.axes import SCHEMA_DEFAULTS, AxisValues, spell, written
from harness.plan.case_rules import Misfit, misfit_of, variants_of
from harness.plan.errors import MatrixError
from harness.plan.explain import place_at, value_at
from harness.plan.ids import cell_id
from harness.plan.matching import matches, why_none
from harness.plan.models import MatrixModel, pattern_of
from harness.plan.yamlfile import Place, YamlList, YamlMap
from harness.types import Axes

MAX_CELLS = 100_000
OVERRIDE = "--set"


class Origin(str):
    """Where a setting came from, in words. ``place`` is where it stands, None when no entry of the file gives it."""

    place: Place | None

    def __new__(cls, text: str, place: Place | None = None) -> Origin:
        self = super().__new__(cls, text)
        self.place = place
        return self


@dataclass
class Draft:
    """A cell in the making: its axis values, where each came from, the entry that made it and that entry's section."""

    values: dict[str, Any]
    origin: dict[str, str]
    maker: Place
    section: str

    def changed(self, values: Mapping[str, Any], origin: Mapping[str, str], maker: Place | None = None) -> Draft:
        merged = {**self.values, **values}, {**self.origin, **origin}
        return Draft(*merged, self.maker if maker is None else maker, self.section)

    def place_of(self, axis: str) -> Place:
        """Where the file gives this cell the axis, else its case, else the entry that made it."""
        places = (getattr(self.origin.get(one), "place", None) for one in (axis, "case"))
        return next((place for place in places if place is not None), self.maker)


@dataclass(frozen=True)
class _Idle:
    """An entry that meant no cell: an error, unless the cells that it meant are missing for another reason."""

    place: Place
    message: str
    sections: tuple[str, ...]  # whose cells must all be there for the entry to be at fault


@dataclass(frozen=True)
class Source:
    """What is expanded. ``problems`` collects what is wrong; sections in ``broken`` lack cells because of an error."""

    model: MatrixModel
    data: YamlMap
    overrides: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    problems: list[MatrixError] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def place(self, *loc: str | int) -> Place:
        return place_at(self.data, loc)

    def origin(self, what: str, *loc: str | int) -> str:
        place = self.place(*loc)
        return Origin(f"{place.short} {what}", place)

    def value_origins(self, what: str, count: int, *loc: str | int) -> list[str]:
        """The origins of the ``count`` values of the axis at ``loc``, which the file gives as a list or as one."""
        value = value_at(self.data, loc)
        is_many = isinstance(value, YamlList) and (
            loc[-1] != "shape" or any(isinstance(item, YamlList) for item in value)
        )
        return [self.origin(what, *loc, index) if is_many else self.origin(what, *loc) for index in range(count)]

    def blame(self, place: Place, message: str, near: str | None = None, *, lacking: str = "") -> None:
        """Note a mistake; ``lacking`` names the section whose cells are not all there because of it."""
        self.problems.append(place.error(message, near))
        if lacking:
            self.broken.add(lacking)

    def is_sound(self, *sections: str) -> bool:
        """True when none of these sections lacks cells: what is missing in the plan is missing in the file."""
        return not self.broken.intersection(sections)


def draft_cells(source: Source) -> list[Draft]:
    """Every combination, in the file's order: the first axis under ``matrix`` changes slowest, includes come last.

    What is wrong is blamed in ``source``: values that a cell's case has no program for, entries for no cell, doubles.
    """
    drafts, idle = _combine(source)
    _blame_misfits(source, _misfits(drafts))
    for entry in idle:
        if source.is_sound(*entry.sections):
            source.blame(entry.place, entry.message)
    return _distinct(source, drafts)


def draft_overridden(source: Source) -> tuple[list[Draft], list[tuple[Draft, Misfit]]]:
    """As ``draft_cells`` where ``--set`` changes a file without mistakes: the cells, and those that fit no program.

    The latter are no cells. A case that lacks what another one has is no mistake of the file here.
    """
    drafts, _ = _combine(source)
    misfits = _misfits(drafts)
    unfit = {id(draft) for draft, _ in misfits}
    return _distinct(source, [draft for draft in drafts if id(draft) not in unfit]), misfits


def _combine(source: Source) -> tuple[list[Draft], list[_Idle]]:
    if not size_is_allowed(source):
        return [], []
    idle: list[_Idle] = []
    drafts = _exclude(source, _with_variants(_product(source)), idle) + _with_variants(_include(source))
    return _adjust(source, drafts, idle), idle


def _with_variants(drafts: Iterable[Draft]) -> list[Draft]:
    """Where no variant is named, one draft for each that the case has."""
    origin = {"variant": "every variant of the case"}
    found: list[Draft] = []
    for draft in drafts:
        variants = variants_of(draft.values)
        named = tuple(variants) == (draft.values["variant"],)
        found += [draft] if named else [draft.changed({"variant": variant}, origin) for variant in variants]
    return found


def _misfits(drafts: Sequence[Draft]) -> list[tuple[Draft, Misfit]]:
    return [(draft, misfit) for draft in drafts if (misfit := misfit_of(draft.values))]


def _blame_misfits(source: Source, misfits: Sequence[tuple[Draft, Misfit]]) -> None:
    """One message for each value at its place in the file, however many cells and cases it is wrong for."""
    found: dict[tuple[Place, str, str], dict[str, Misfit]] = {}
    for draft, misfit in misfits:
        key = draft.place_of(misfit.axis), misfit.axis, spell(draft.values[misfit.axis])
        found.setdefault(key, {}).setdefault(draft.values["case"], misfit)
        source.broken.add(draft.section)
    for (place, _, _), by_case in found.items():
        first, *others = by_case.values()
        more = f" (and so for {len(others)} more case{'s' if len(others) > 1 else ''})" if others else ""
        source.blame(place, first.message + more, first.nearest)


def size_is_allowed(source: Source) -> bool:
    """False, and blamed, when there are too many cells to be meant; nothing is expanded to know it."""
    parts = [(_size(source, _axis_lists(source)), source.place("matrix"))] if source.model.matrix else []
    for index, entry in enumerate(source.model.include):
        lists = {**written(entry), **source.overrides}
        parts.append((_size(source, lists), source.place("include", index)))
    cells = sum(count for count, _ in parts)
    if cells > MAX_CELLS:
        _, largest = max(parts, key=lambda part: part[0])
        source.blame(largest, f"{cells} cells, more than the {MAX_CELLS} that one matrix may have", lacking="matrix")
    return cells <= MAX_CELLS


def _size(source: Source, lists: Mapping[str, Sequence[Any]]) -> int:
    """How many cells a product has, with every variant of its cases where none is named."""
    base = {**SCHEMA_DEFAULTS, **written(source.model.defaults)}
    cases = lists.get("case", [base["case"]])
    others = math.prod(len(values) for axis, values in lists.items() if axis != "case")
    if "variant" in lists:
        return others * len(cases)
    return others * sum(len(variants_of({**base, "case": case})) for case in cases)


def _axis_lists(source: Source) -> dict[str, list[Any]]:
    """The values of each axis in the product, in the file's order; overridden axes that it doesn't list come last."""
    model = source.model.matrix
    lists = written(model) if model else {}
    in_file = [str(axis) for axis in source.data.get("matrix", ())]
    ordered = {axis: lists[axis] for axis in in_file}
    return {**ordered, **{axis: list(values) for axis, values in source.overrides.items()}}


def _base(source: Source, section: str) -> Draft:
    defaults = written(source.model.defaults)
    origin = dict.fromkeys(SCHEMA_DEFAULTS, "schema default")
    # Without places: a default is not at fault where an entry doesn't fit it.
    origin.update({axis: str(source.origin(f"defaults.{axis}", "defaults", axis)) for axis in defaults})
    return Draft({**SCHEMA_DEFAULTS, **defaults}, origin, source.place(section), section)


def _product(source: Source) -> Iterator[Draft]:
    if source.model.matrix is None:
        return
    base, lists = _base(source, "matrix"), _axis_lists(source)
    if "recipe" not in base.values and "recipe" not in lists:
        source.blame(base.maker, "no recipe: name at least one, under matrix or under defaults", lacking="matrix")
        return
    yield from _combinations(source, base, lists, "matrix.{}", "matrix")


def _combinations(
    source: Source, base: Draft, lists: Mapping[str, Sequence[Any]], what: str, *loc: str | int
) -> Iterator[Draft]:
    """Every combination of ``lists``, which stand at ``loc``; ``what`` names the origin of an axis's values."""
    choices = []
    for axis, values in lists.items():
        is_set = axis in source.overrides
        origins = [OVERRIDE] * len(values)
        if not is_set:
            origins = source.value_origins(what.format(axis), len(values), *loc, axis)
        choices.append([(axis, value, origin) for value, origin in zip(values, origins, strict=True)])
    for combination in itertools.product(*choices):
        chosen = {axis: value for axis, value, _ in combination}
        yield base.changed(chosen, {axis: origin for axis, _, origin in combination})


def _exclude(source: Source, drafts: list[Draft], idle: list[_Idle]) -> list[Draft]:
    patterns = [pattern_of(entry) for entry in source.model.exclude]
    for index, pattern in enumerate(patterns):
        if not any(matches(draft.values, pattern) for draft in drafts):
            reason = why_none(pattern, [draft.values for draft in drafts])
            message = f"this exclude matches no cell of the product: {reason}"
            idle.append(_Idle(source.place("exclude", index), message, ("matrix",)))
    return [draft for draft in drafts if not any(matches(draft.values, pattern) for pattern in patterns)]


def _include(source: Source) -> Iterator[Draft]:
    base = _base(source, "include")
    for index, entry in enumerate(source.model.include):
        place = source.place("include", index)
        lists = written(entry)
        if "recipe" not in {**base.values, **lists, **source.overrides}:
            source.blame(place, "no recipe: this cell names none, and neither does defaults", lacking="include")
            continue
        in_file = {axis: lists[axis] for axis in map(str, value_at(source.data, ("include", index)))}
        made = base.changed({}, {}, place)
        yield from _combinations(source, made, {**in_file, **source.overrides}, f"include[{index}]", "include", index)


def _adjust(source: Source, drafts: list[Draft], idle: list[_Idle]) -> list[Draft]:
    """Each entry sees the cells as the entries before it left them; an overridden axis stays as ``--set`` made it."""
    sections = ("matrix", "defaults", "include", "adjust")
    for index, entry in enumerate(source.model.adjust):
        pattern, place = pattern_of(entry.when), source.place("adjust", index)
        hit = [position for position, draft in enumerate(drafts) if matches(draft.values, pattern)]
        if not hit:
            reason = why_none(pattern, [draft.values for draft in drafts])
            idle.append(_Idle(place, f"this adjust matches no cell: {reason}", sections))
        changes = _without_overridden(entry.set, source)
        origin = {axis: source.origin(f"adjust[{index}]", "adjust", index, "set", axis) for axis in changes}
        for position in hit:
            drafts[position] = drafts[position].changed(changes, origin, place)
        if "case" in changes:
            drafts = _with_variants(drafts)
    return drafts


def _without_overridden(entry: AxisValues, source: Source) -> dict[str, Any]:
    return {axis: value for axis, value in written(entry).items() if axis not in source.overrides}


def _distinct(source: Source, drafts: list[Draft]) -> list[Draft]:
    """Two cells of one id: an error of the file, but only to be expected where ``--set`` makes cells alike."""
    seen: dict[tuple[Any, ...], Draft] = {}
    for draft in drafts:
        key = tuple(sorted(draft.values.items(), key=lambda item: item[0]))
        first = seen.setdefault(key, draft)
        if first is not draft and source.is_sound("matrix", "defaults", "exclude", "include", "adjust"):
            other = "that it gives already" if first.maker == draft.maker else f"that line {first.maker.line} gives"
            source.blame(draft.maker, f"doubles the cell {other}: {cell_id(Axes(**draft.values))}")
    return list(seen.values())
