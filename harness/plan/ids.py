"""Cell ids: ``case[provider=…,recipe=…,axis=value,…]``, every axis that differs from the schema's default, in order.

The provider and the recipe always stand in an id; the inner recipe of a nested region stands right after the nesting.
An id names one cell for ever: results, history and baselines key on it, so it depends on nothing but the cell's values.
"""

from __future__ import annotations

import re

from pydantic import ValidationError

from cases import CASES
from harness.plan.axes import AXES, SCHEMA_DEFAULTS, AxisValues, spell, split_values, unspell, written
from harness.plan.case_rules import misfit_of
from harness.plan.errors import SelectionError
from harness.plan.explain import plain_message
from harness.plan.nearest import unknown
from harness.plan.yamlfile import Place
from harness.types import PARTNERS, Axes, Spec

# Nestings whose inner region has another recipe; the others have one recipe (nested_disabled: inside it, none).
# A case whose program has two for a reason of its own says so in its registration (CaseEntry.pair).
NESTINGS_WITH_INNER = ("nested", "deep", "sequential")

_ID = re.compile(r"(\w+)\[(\S+)\]")
_COMMAND_LINE = Place("command line", 1, 1)


def inner_of(axes: Axes) -> Spec | None:
    """The program's second recipe, where it has one, from the fixed table ``harness/types.PARTNERS``."""
    entry = CASES.get(axes.case)
    paired = axes.nesting in NESTINGS_WITH_INNER or (entry is not None and axes.variant in entry.pair)
    return Spec(PARTNERS[axes.recipe.name]) if paired else None


def cell_id(axes: Axes) -> str:
    """The one id of these axis values; without blanks and without ``::``, so that pytest takes it as it is."""
    parts = []
    for axis in AXES[1:]:
        value = getattr(axes, axis)
        if axis in ("provider", "recipe") or value != SCHEMA_DEFAULTS[axis]:
            parts.append(f"{axis}={spell(value)}")
        inner = inner_of(axes) if axis == "nesting" else None
        if inner is not None:
            parts.append(f"inner={inner.label}")
    return f"{axes.case}[{','.join(parts)}]"


def parse_id(text: str) -> dict[str, str]:
    """An id's settings as they are spelled in it, ``case`` first, ``inner`` included; what it omits is omitted.

    Raises:
        SelectionError: not of the form of an id, or a setting twice.
    """
    whole = _ID.fullmatch(text)
    if whole is None:
        raise SelectionError(f"not a cell id: {text!r}; an id is case[provider=…,recipe=…,axis=value,…]")
    settings = {"case": whole[1]}
    for part in split_values(whole[2]):
        axis, equals, value = part.partition("=")
        if not equals or axis in settings:
            raise SelectionError(f"not a cell id: {text!r}; {part!r} is no setting, or one too many")
        settings[axis] = value
    return settings


def axes_from_id(text: str) -> Axes:
    """The axis values that an id names: the inverse of ``cell_id``.

    Raises:
        SelectionError: not an id, an unknown axis or value, one that the case has no program for, or not in the one
            spelling that ids have.
    """
    settings = parse_id(text)
    settings.pop("inner", None)
    values = {axis: read_value(axis, value) for axis, value in settings.items()}
    if "recipe" not in values:
        raise SelectionError(f"not a cell id: {text!r}; it names no recipe")
    axes = Axes(**{**SCHEMA_DEFAULTS, **values})
    misfit = misfit_of(vars(axes))
    if misfit is not None:
        near = (misfit.nearest,) if misfit.nearest else ()
        raise SelectionError(f"not a cell id: {text!r}; {misfit.message}", near)
    if cell_id(axes) != text:
        raise SelectionError(f"not a cell id: {text!r}", (cell_id(axes),))
    return axes


def check_axis(axis: str, option: str) -> None:
    """Raise SelectionError for an axis that doesn't exist; ``option`` names where it was given."""
    if axis not in AXES:
        message, near = unknown("axis", axis, AXES)
        raise SelectionError(f"{option}: {message}", (near,) if near else ())


def read_value(axis: str, text: str, option: str = "cell id") -> object:
    """The value of an axis from its spelling in an id, ``--set`` or ``--select``.

    Raises:
        SelectionError: an unknown axis, or a value that the axis can't hold, with the nearest that it can.
    """
    check_axis(axis, option)
    try:
        model = AxisValues.model_validate({axis: unspell(axis, text, _COMMAND_LINE)})
    except ValidationError as error:
        message, near = plain_message(error)
        raise SelectionError(f"{option} {axis}={text}: {message}", (near,) if near else ()) from error
    return written(model)[axis]
