"""Which axis values a case has a program for (harness.types.CaseEntry): no axis is ever ignored in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cases import CASES
from harness.plan.nearest import nearest
from harness.types import CaseEntry

# The case that runs the user's own program; it alone takes the axis ``target``.
TARGET_CASE = "target"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Misfit:
    """A value that a case has no program for: the axis to blame, what is wrong, and the nearest that it has."""

    axis: str
    message: str
    nearest: str | None = None


def variant_names() -> tuple[str, ...]:
    """Every variant of every registered case."""
    return tuple(dict.fromkeys(name for entry in CASES.values() for name in entry.variants))


def variants_of(values: Values) -> Sequence[str]:
    """The variants that these axis values mean: the one named, else every one of the case, else ``""``."""
    named: str = values["variant"]
    entry = CASES.get(values["case"])
    if named or entry is None:
        return (named,)
    return entry.variants or ("",)


def misfit_of(values: Values) -> Misfit | None:
    """The first thing in a cell's axis values, which hold every axis, that its case has no program for."""
    entry = CASES.get(values["case"])
    if entry is None:
        return None  # an unknown case is reported where it stands in the file
    return next((found for rule in _RULES if (found := rule(values, entry))), None)


def _variant_fits(values: Values, entry: CaseEntry) -> Misfit | None:
    case, variant = values["case"], values["variant"]
    if variant in (entry.variants or ("",)):
        return None
    if not entry.variants:
        return Misfit("variant", f"case {case!r} has no variants, so none can be named")
    if not variant:
        return Misfit("variant", f"case {case!r} needs a variant: {', '.join(entry.variants)}")
    return Misfit("variant", *_lacks(case, "variant", variant, entry.variants))


def _nesting_fits(values: Values, entry: CaseEntry) -> Misfit | None:
    case, nesting = values["case"], values["nesting"]
    if nesting in entry.nestings:
        return None
    return Misfit("nesting", *_lacks(case, "program of nesting", nesting, entry.nestings))


def _recipe_fits(values: Values, entry: CaseEntry) -> Misfit | None:
    case, recipe = values["case"], values["recipe"].name
    if recipe in entry.recipes:
        return None
    return Misfit("recipe", f"case {case!r} has no program for recipe {recipe!r}, only for {', '.join(entry.recipes)}")


def _target_fits(values: Values, entry: CaseEntry) -> Misfit | None:
    case, target = values["case"], values["target"]
    if (case == TARGET_CASE) == bool(target):
        return None
    if target:
        return Misfit("target", f"case {case!r} takes no target: that is for case {TARGET_CASE!r}")
    return Misfit("target", f"case {case!r} needs a target: package.module:attribute of the program to run")


_RULES: Sequence[Callable[[Values, CaseEntry], Misfit | None]] = (
    _variant_fits,
    _nesting_fits,
    _recipe_fits,
    _target_fits,
)


def _lacks(case: str, what: str, name: str, names: Sequence[str]) -> tuple[str, str | None]:
    """The message, with all of ``names`` where none is near, and the nearest."""
    near = nearest(name, names)
    known = "" if near else f", only {', '.join(names)}"
    return f"case {case!r} has no {what} {name!r}{known}", near
