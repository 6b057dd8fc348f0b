"""From a validated matrix to combinations of axis values: product, exclude, include, adjust, in this order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.plan.axes import SCHEMA_DEFAULTS, AxisValues, written
from harness.plan.errors import MatrixError
from harness.plan.explain import place_at
from harness.plan.ids import cell_id
from harness.plan.matching import matches, why_none
from harness.plan.models import MatrixModel, pattern_of
from harness.plan.yamlfile import Place, YamlMap
from harness.types import Axes

MAX_CELLS = 100_000
OVERRIDE = "--set"


@dataclass
class Draft:
    """A cell in the making: its axis values, where each came from, and the entry that made it."""

    values: dict[str, Any]
    origin: dict[str, str]
    maker: Place

    def changed(self, values: Mapping[str, Any], origin: Mapping[str, str], maker: Place) -> Draft:
        return Draft({**self.values, **values}, {**self.origin, **origin}, maker)


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
        return f"{self.place(*loc).short} {what}"

    def blame(self, place: Place, message: str, lacking: str = "") -> None:
        """Note a mistake; ``lacking`` names the section whose cells are not all there because of it."""
        self.problems.append(place.error(message))
        if lacking:
            self.broken.add(lacking)

    def is_sound(self, *sections: str) -> bool:
        """True when none of these sections lacks cells: what is missing in the plan is missing in the file."""
        return not self.broken.intersection(sections)


def draft_cells(source: Source) -> list[Draft]:
    """Every combination, in the file's order: the first axis under ``matrix`` changes slowest, includes come last."""
    if not size_is_allowed(source):
        return []
    drafts = _exclude(source, list(_product(source))) + list(_include(source))
    _adjust(source, drafts)
    return _distinct(source, drafts)


def size_is_allowed(source: Source) -> bool:
    """False, and blamed on the matrix, when the product is too large to be meant; nothing is expanded to know it."""
    lists = {axis: len(values) for axis, values in _axis_lists(source).items()}
    included = len(source.model.include) * math.prod(len(values) for values in source.overrides.values())
    cells = (math.prod(lists.values()) if source.model.matrix else 0) + included
    if cells > MAX_CELLS:
        message = f"{cells} cells, more than the {MAX_CELLS} that one matrix may have"
        source.blame(source.place("matrix"), message, lacking="matrix")
    return cells <= MAX_CELLS


def _axis_lists(source: Source) -> dict[str, list[Any]]:
    """The values of each axis in the product, in the file's order; overridden axes that it doesn't list come last."""
    model = source.model.matrix
    lists = written(model) if model else {}
    in_file = [str(axis) for axis in source.data.get("matrix", ())]
    ordered = {axis: lists[axis] for axis in in_file}
    return {**ordered, **{axis: list(values) for axis, values in source.overrides.items()}}


def _base(source: Source) -> Draft:
    defaults = written(source.model.defaults)
    origin = dict.fromkeys(SCHEMA_DEFAULTS, "schema default")
    origin.update({axis: source.origin(f"defaults.{axis}", "defaults", axis) for axis in defaults})
    return Draft({**SCHEMA_DEFAULTS, **defaults}, origin, source.place("matrix"))


def _product(source: Source) -> Iterator[Draft]:
    if source.model.matrix is None:
        return
    base, lists = _base(source), _axis_lists(source)
    if "recipe" not in base.values and "recipe" not in lists:
        source.blame(base.maker, "no recipe: name at least one, under matrix or under defaults", lacking="matrix")
        return
    choices = []
    for axis, values in lists.items():
        origins = [
            OVERRIDE if axis in source.overrides else source.origin(f"matrix.{axis}", "matrix", axis, index)
            for index in range(len(values))
        ]
        choices.append([(axis, value, origin) for value, origin in zip(values, origins, strict=True)])
    for combination in itertools.product(*choices):
        chosen = {axis: value for axis, value, _ in combination}
        yield base.changed(chosen, {axis: origin for axis, _, origin in combination}, base.maker)


def _exclude(source: Source, drafts: list[Draft]) -> list[Draft]:
    patterns = [pattern_of(entry) for entry in source.model.exclude]
    for index, pattern in enumerate(patterns):
        if source.is_sound("matrix") and not any(matches(draft.values, pattern) for draft in drafts):
            reason = why_none(pattern, [draft.values for draft in drafts])
            source.blame(source.place("exclude", index), f"this exclude matches no cell of the product: {reason}")
    return [draft for draft in drafts if not any(matches(draft.values, pattern) for pattern in patterns)]


def _include(source: Source) -> Iterator[Draft]:
    base = _base(source)
    for index, entry in enumerate(source.model.include):
        place = source.place("include", index)
        values = written(entry)
        if "recipe" not in {**base.values, **values, **source.overrides}:
            source.blame(place, "no recipe: this cell names none, and neither does defaults", lacking="include")
            continue
        origin = {axis: source.origin(f"include[{index}]", "include", index, axis) for axis in values}
        included = base.changed(values, origin, place)
        for combination in itertools.product(*source.overrides.values()):
            chosen = dict(zip(source.overrides, combination, strict=True))
            yield included.changed(chosen, dict.fromkeys(chosen, OVERRIDE), place)


def _adjust(source: Source, drafts: list[Draft]) -> None:
    """Each entry sees the cells as the entries before it left them; an overridden axis stays as ``--set`` made it."""
    for index, entry in enumerate(source.model.adjust):
        pattern, place = pattern_of(entry.when), source.place("adjust", index)
        hit = [position for position, draft in enumerate(drafts) if matches(draft.values, pattern)]
        if not hit and source.is_sound("matrix", "defaults", "include", "adjust"):
            reason = why_none(pattern, [draft.values for draft in drafts])
            source.blame(place, f"this adjust matches no cell: {reason}")
        changes = _without_overridden(entry.set, source)
        origin = {axis: source.origin(f"adjust[{index}]", "adjust", index, "set", axis) for axis in changes}
        for position in hit:
            drafts[position] = drafts[position].changed(changes, origin, place)


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
