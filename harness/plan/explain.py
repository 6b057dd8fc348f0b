"""From pydantic's errors to messages at a place in the file, each with the nearest valid name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.plan.axes import AXES
from harness.plan.errors import MatrixError
from harness.plan.models import (
    AdjustEntry,
    BudgetEntry,
    ExpectEntry,
    MatrixModel,
    RaisesEntry,
    Versions,
    WaiverEntry,
)
from harness.plan.nearest import nearest, quoted, unknown
from harness.plan.recipes import RECIPE_MODELS
from harness.plan.scalars import describe
from harness.plan.settings import PROVIDER_MODELS, ProviderSettings
from harness.plan.yamlfile import Place, YamlList, YamlMap, YamlText, YamlValue

Loc = Sequence[Any]

# The last of these names on the way to an unknown key decides which keys were possible there.
_OWNERS: Mapping[str, Iterable[str]] = {
    **dict.fromkeys(("defaults", "matrix", "exclude", "include", "when", "set"), AXES),
    "cross": ("fault", "caught_by", *AXES),
    "budgets": BudgetEntry.model_fields,
    "raises": RaisesEntry.model_fields,
    "versions": Versions.model_fields,
    "adjust": AdjustEntry.model_fields,
    "expect": ExpectEntry.model_fields,
    "waivers": WaiverEntry.model_fields,
    "recipe": (),
    "provider": (),
}


def value_at(data: YamlValue, loc: Loc) -> YamlValue:
    """The value at a pydantic location; parts that the file doesn't hold (names of unions, absent keys, items that a
    validator added) are skipped."""
    value = data
    for key in loc:
        if isinstance(value, YamlMap):
            value = value.get(key, value)
        elif isinstance(value, YamlList) and isinstance(key, int) and key < len(value):
            value = value[key]
    return value


def place_at(data: YamlValue, loc: Loc) -> Place:
    return value_at(data, loc).place


def explain(
    error: ValidationError, data: YamlMap, keys: Sequence[str] = tuple(MatrixModel.model_fields)
) -> list[MatrixError]:
    """One message for each thing that the models refused. ``keys``: those of the file's top level."""
    return [_explain(details, data, keys) for details in error.errors(include_url=False)]


def plain_message(error: ValidationError) -> tuple[str, str | None]:
    """The first error without a place, for values that come from the command line."""
    details = error.errors(include_url=False)[0]
    if details["type"] == "extra_forbidden":
        return f"unknown field {quoted(str(details['loc'][-1]))}", None
    return _message(details), details.get("ctx", {}).get("nearest")


def _explain(details: ErrorDetails, data: YamlMap, keys: Sequence[str]) -> MatrixError:
    loc = details["loc"]
    if details["type"] == "extra_forbidden":
        return _unknown_key(str(loc[-1]), loc[:-1], data, keys)
    return place_at(data, loc).error(_message(details), details.get("ctx", {}).get("nearest"))


def _message(details: ErrorDetails) -> str:
    kind, context, got = details["type"], details.get("ctx", {}), describe(details["input"])
    if kind == "plan":
        return str(context["message"])
    if kind == "missing":
        return f"missing key {details['loc'][-1]!r}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"expected a mapping, got {got}"
    if kind == "list_type":
        return f"expected a list, got {got}"
    if kind == "too_short":
        return "an empty list: at least one value is needed"
    return f"{details['msg'][:1].lower()}{details['msg'][1:]}, got {got}"


def _unknown_key(key: str, loc: Loc, data: YamlMap, keys: Sequence[str]) -> MatrixError:
    parent = value_at(data, loc)
    place = parent.key_places.get(key, parent.place) if isinstance(parent, YamlMap) else parent.place
    owner = next((part for part in reversed(loc) if isinstance(part, str) and part in _OWNERS), "")
    if owner == "" and key in ("faults", "cross") and "matrix" in keys:
        return place.error(f"key {key!r} makes this a selftest file: runner.py selftest --matrix FILE")
    if owner == "" and key in AXES and "matrix" in keys:
        return place.error(f"axis {key!r} belongs under matrix (its values) or defaults (one value)")
    if owner in ("recipe", "provider"):
        return _unknown_field(key, owner, parent, place)
    names = tuple(_OWNERS[owner]) if owner else tuple(keys)
    what = "axis" if names == AXES else "key"
    where = f" in {owner}" if owner else ""
    return place.error(f"unknown {what} {quoted(key)}{where}", nearest(key, names))


def _unknown_field(key: str, owner: str, parent: YamlValue, place: Place) -> MatrixError:
    name = str(parent.get("name", "")) if isinstance(parent, YamlMap) else ""
    if owner == "recipe":
        model: type[Any] = RECIPE_MODELS[name]
    else:
        model = PROVIDER_MODELS.get(name.split("+")[0], ProviderSettings)
    names = [one for one in model.model_fields if one != "name"]
    message, near = unknown(f"{name} field", key, names)
    return place.error(message if names else f"{message}: it has none", near)


def without_errors(data: YamlMap, error: ValidationError) -> tuple[YamlMap, frozenset[str]]:
    """``data`` without the entries and keys that hold errors, and the names of the sections that lost something.

    What is left is checked further, so that one run names every mistake of a file.
    """
    bad: dict[str, set[Any]] = {}
    for details in error.errors(include_url=False):
        section, *rest = details["loc"]
        is_entry = bool(rest) and isinstance(data.get(str(section)), YamlList)
        bad.setdefault(str(section), set()).add(rest[0] if is_entry else None)
    sound = YamlMap(data.place)
    sound.key_places = data.key_places
    for key, value in data.items():
        dropped = bad.get(key, set())
        if isinstance(value, YamlList) and None not in dropped:
            kept = YamlList(value.place)
            kept.extend(item for index, item in enumerate(value) if index not in dropped)
            sound[key] = kept
        elif not dropped:
            sound[key] = value
    sound["schema_version"] = YamlText("1", data.place)
    return sound, frozenset(bad)
