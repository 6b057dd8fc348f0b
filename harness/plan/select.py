"""Which cells of a plan a run takes: exact ids, exact axis values, keywords, a shard, and in what order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from harness.plan.axes import AxisPattern, unspell
from harness.plan.errors import SelectionError
from harness.plan.explain import plain_message
from harness.plan.ids import check_axis
from harness.plan.keyword import compile_keyword
from harness.plan.matching import matches, why_none
from harness.plan.models import pattern_of
from harness.plan.nearest import nearest_ids
from harness.plan.types import Plan
from harness.plan.yamlfile import Place
from harness.types import Cell

_COMMAND_LINE = Place("command line", 1, 1)


@dataclass(frozen=True)
class Selection:
    """What the command line asked for; a cell must satisfy every part that is given.

    ``cells``: exact ids. ``select``: axis to spelled values, any of them; a bare recipe or provider name takes it with
    any fields. ``providers``: as ``select`` on that axis. ``last_failed``: ids, those that the plan no longer has are
    ignored; None is no condition. ``shard``: (i, n) takes the i-th of n parts, i from 1. ``shuffle``: a seed.
    """

    cells: tuple[str, ...] = ()
    select: Mapping[str, Sequence[str]] = field(default_factory=dict)
    keyword: str = ""
    providers: tuple[str, ...] = ()
    shard: tuple[int, int] | None = None
    last_failed: frozenset[str] | None = None
    shuffle: int | None = None


def select(plan: Plan, selection: Selection) -> tuple[Cell, ...]:
    """The selected cells in plan order, or shuffled; empty when nothing is left, which the caller turns into exit 5.

    Shards are dealt out in turn from what the other conditions left, so every selected cell is in exactly one of them.

    Raises:
        SelectionError: an unknown id, axis or value, a -k that is no expression, a shard out of range.
    """
    _check_ids(plan, selection.cells)
    _check_shard(selection.shard)
    patterns = _patterns(selection)
    has_keyword = compile_keyword(selection.keyword)
    chosen = [
        cell
        for cell in plan.cells
        if (not selection.cells or cell.id in selection.cells)
        and all(matches(vars(cell.axes), pattern) for pattern in patterns)
        and has_keyword(cell.id)
        and (selection.last_failed is None or cell.id in selection.last_failed)
    ]
    if selection.shard is not None:
        index, count = selection.shard
        chosen = chosen[index - 1 :: count]
    if selection.shuffle is not None:
        random.Random(selection.shuffle).shuffle(chosen)
    return tuple(chosen)


def why_nothing(plan: Plan, selection: Selection) -> str:
    """Words for a selection that leaves nothing: the first axis condition that no cell meets, where there is one."""
    cells = [vars(cell.axes) for cell in plan.cells]
    for pattern in _patterns(selection):
        if not any(matches(values, pattern) for values in cells):
            return why_none(pattern, cells)
    return "no cell meets all of the conditions"


def _patterns(selection: Selection) -> list[dict[str, tuple[object, ...]]]:
    asked = [(axis, values, "--select") for axis, values in selection.select.items()]
    if selection.providers:
        asked.append(("provider", selection.providers, "--provider"))
    return [_pattern(axis, values, option) for axis, values, option in asked]


def _pattern(axis: str, spellings: Iterable[str], option: str) -> dict[str, tuple[object, ...]]:
    check_axis(axis, option)
    values: list[object] = []
    for text in spellings:
        try:
            model = AxisPattern.model_validate({axis: unspell(axis, text, _COMMAND_LINE)})
        except ValidationError as error:
            message, near = plain_message(error)
            raise SelectionError(f"{option} {axis}={text}: {message}", (near,) if near else ()) from error
        values.extend(pattern_of(model)[axis])
    if not values:
        raise SelectionError(f"{option} {axis}=: at least one value is needed")
    return {axis: tuple(values)}


def _check_ids(plan: Plan, wanted: Iterable[str]) -> None:
    ids = [cell.id for cell in plan.cells]
    known = set(ids)
    for cell_id in wanted:
        if cell_id not in known:
            raise SelectionError(f"no cell {cell_id!r} in {plan.path}", nearest_ids(cell_id, ids))


def _check_shard(shard: tuple[int, int] | None) -> None:
    if shard is not None and not 1 <= shard[0] <= shard[1]:
        raise SelectionError(f"--shard {shard[0]}/{shard[1]}: expected I/N with 1 <= I <= N")
