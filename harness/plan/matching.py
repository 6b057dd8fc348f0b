"""Which cells an entry means, and in words why it means none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.plan.axes import spell
from harness.plan.specs import SpecPattern

Values = Mapping[str, Any]
PatternMap = Mapping[str, tuple[Any, ...]]
Matcher = Callable[[Values, PatternMap], bool]

_SHOWN = 6


def matches(values: Values, pattern: PatternMap) -> bool:
    """True when each named axis has one of the wanted values, exactly."""
    return all(any(_same(values[axis], one) for one in wanted) for axis, wanted in pattern.items())


def matches_somewhere(values: Values, pattern: PatternMap) -> bool:
    """As ``matches``, but ``host`` may be any architecture: which one is only known where the cell runs."""
    if values["arch"] == "host":
        pattern = {axis: wanted for axis, wanted in pattern.items() if axis != "arch"}
    return matches(values, pattern)


def _same(value: Any, wanted: Any) -> bool:
    return wanted.matches(value) if isinstance(wanted, SpecPattern) else bool(value == wanted)


def why_none(pattern: PatternMap, cells: Sequence[Values], meets: Matcher = matches) -> str:
    """Why no cell matches: the first axis whose value never occurs, or that the values never meet in one cell."""
    if not cells:
        return "there are no cells to match"
    for axis, wanted in pattern.items():
        if not any(meets(values, {axis: wanted}) for values in cells):
            meant = " or ".join(spell(one) for one in wanted)
            return f"no cell has {axis} {meant}; there is {_listed(spell(values[axis]) for values in cells)}"
    return "each of its values occurs, but never together in one cell"


def _listed(names: Iterable[str]) -> str:
    distinct = [name or "none" for name in dict.fromkeys(names)]
    rest = f" and {len(distinct) - _SHOWN} more" if len(distinct) > _SHOWN else ""
    return ", ".join(distinct[:_SHOWN]) + rest
