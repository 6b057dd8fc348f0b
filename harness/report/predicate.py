"""The smallest axis predicate that separates a group of reds from the green cells.

Pure functions. The search is exhaustive by size, which stays cheap because only one term a set of axes has to be
tried: of all predicates over the same axes that are true on every member, the one whose every term holds just the
members' own values excludes the most greens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from types import MappingProxyType
from typing import Any

from harness.types import scalar_text

MAX_TERMS = 3


def axis_text(value: Any) -> str:
    """One axis value as reports write it: booleans as in YAML, a shape as ``64x128x128``."""
    if isinstance(value, (list, tuple)):
        return "x".join(axis_text(item) for item in value)
    return scalar_text(value)


@dataclass(frozen=True)
class Term:
    """``axis=value`` or ``axis in {values}``; values in the order in which the group's members show them.

    ``others`` are the axis's other values in the run; where they are fewer, the text names them instead.
    """

    axis: str
    values: tuple[str, ...]
    others: tuple[str, ...] = ()

    def holds(self, axes: Mapping[str, Any]) -> bool:
        return self.axis in axes and axis_text(axes[self.axis]) in self.values

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.axis}={self.values[0]}"
        if not 0 < len(self.others) < len(self.values):
            return f"{self.axis} in {{{', '.join(self.values)}}}"
        if len(self.others) == 1:
            return f"{self.axis}!={self.others[0]}"
        return f"{self.axis} not in {{{', '.join(self.others)}}}"


@dataclass(frozen=True)
class Predicate:
    """A conjunction of terms. Without terms it is true everywhere (there was no green cell to tell apart)."""

    terms: tuple[Term, ...]

    def holds(self, axes: Mapping[str, Any]) -> bool:
        return all(term.holds(axes) for term in self.terms)

    def __str__(self) -> str:
        return " and ".join(map(str, self.terms)) if self.terms else "every cell (no green cell to compare with)"


class Separator:
    """Finds predicates against one fixed set of green cells.

    Greens are kept as one bit each in Python integers, one integer per (axis, value): a conjunction is then a single
    ``&``, and some ten thousand greens cost a few microseconds.
    """

    def __init__(
        self,
        greens: Sequence[Mapping[str, Any]],
        known: Iterable[Mapping[str, Any]] = (),
        scopes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``known``: the axes of every cell of the run, for the texts of predicates.

        ``scopes`` maps an axis to the one without which its values mean nothing, as a variant does without its case:
        a predicate that names the one names the other too, where the members have a single value of it.
        """
        self._scopes = scopes
        self._all = (1 << len(greens)) - 1
        self._bits: dict[tuple[str, Hashable], int] = {}
        for index, axes in enumerate(greens):
            for axis, value in axes.items():
                key = (axis, axis_text(value))
                self._bits[key] = self._bits.get(key, 0) | (1 << index)
        self._values: dict[str, dict[str, None]] = {}
        self._lacking: set[str] = set()  # axes that not every known cell has
        for axes in known:
            self._lacking |= self._values.keys() ^ axes.keys() if self._values else set()
            for axis, value in axes.items():
                self._values.setdefault(axis, {})[axis_text(value)] = None

    def smallest(self, members: Sequence[Mapping[str, Any]], max_terms: int = MAX_TERMS) -> Predicate | None:
        """The predicate of fewest terms that is true on all ``members`` and false on all greens.

        Among predicates of equally many terms: fewest values, then the axes' own order. None when there is none of up
        to ``max_terms`` terms.
        """
        terms = _tightest(members)
        masks = [self._matching(term) for term in terms]
        for size in range(max_terms + 1):
            found = [
                chosen
                for chosen in combinations(range(len(terms)), size)
                if not reduce(int.__and__, (masks[index] for index in chosen), self._all)
            ]
            if found:
                best = min(found, key=lambda chosen: (sum(len(terms[i].values) for i in chosen), chosen))
                chosen = self._with_scopes([terms[index] for index in best], terms)
                return Predicate(tuple(map(self._with_others, chosen)))
        return None

    def _with_scopes(self, chosen: Sequence[Term], terms: Sequence[Term]) -> list[Term]:
        """The chosen terms, in the axes' own order, with the terms of their scopes where those tell cells apart."""
        scopes = {self._scopes.get(term.axis) for term in chosen}
        return [
            term
            for term in terms
            if term in chosen
            or (term.axis in scopes and len(term.values) == 1 and len(self._values.get(term.axis, ())) > 1)
        ]

    def _with_others(self, term: Term) -> Term:
        """A term's negation is no text for it where some cell doesn't have the axis at all."""
        values = () if term.axis in self._lacking else self._values.get(term.axis, ())
        return replace(term, others=tuple(value for value in values if value not in term.values))

    def _matching(self, term: Term) -> int:
        return reduce(int.__or__, (self._bits.get((term.axis, value), 0) for value in term.values), 0)


def _tightest(members: Sequence[Mapping[str, Any]]) -> list[Term]:
    """For every axis that all members have, the term that holds exactly their values."""
    shared = [axis for axis in members[0] if all(axis in axes for axes in members)] if members else []
    return [Term(axis, tuple(dict.fromkeys(axis_text(axes[axis]) for axes in members))) for axis in shared]
