"""The axes: what each may hold as one value, as a list of values and as a pattern, and how a value is spelled.

A spelling (``delayed_scaling(amax_history_len=16)``, ``128x256x128``, ``false``) is what stands in a cell id and what
``--set`` and ``--select`` take. It is read by the same validators as the YAML file.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, Union

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from cases import CASES
from harness.plan.case_rules import variant_names
from harness.plan.nearest import nearest, quoted
from harness.plan.recipes import Strict, absent
from harness.plan.scalars import Boolean, Natural, OneOf, Positive, Text, describe, problem
from harness.plan.specs import Provider, ProviderPattern, Recipe, RecipePattern, SpecPattern, errors_at
from harness.plan.yamlfile import Place, YamlText
from harness.types import ARCHES, BACKENDS, DATA_KINDS, DTYPES, NESTINGS, Axes, Spec, scalar_text

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

AXES = tuple(one.name for one in dataclasses.fields(Axes))

# harness/types.Axes gives the defaults of the other axes. There is none for the recipe: a matrix says what it tests.
SCHEMA_DEFAULTS: Mapping[str, Any] = {
    "case": "toy_linear",
    "provider": Spec("reference"),
    **{one.name: one.default for one in dataclasses.fields(Axes) if one.default is not dataclasses.MISSING},
}


def _check_shape(value: object) -> object:
    if isinstance(value, (list, tuple)) and len(value) == 3:
        return value
    got = f"{len(value)} values" if isinstance(value, (list, tuple)) else describe(value)
    raise problem(f"expected a shape [M, K, N] of three positive integers, got {got}")


def _check_variant(value: str) -> str:
    """A variant of some case; whether it is one of the cell's own is for case_rules to say."""
    names = variant_names()
    if value not in names:
        near = nearest(value, names)
        raise problem(f"unknown variant {quoted(value)}{'' if near else ': no case has it'}", near)
    return value


def is_target(value: str) -> bool:
    """Whether ``value`` has the form ``package.module:attribute``."""
    return _TARGET.fullmatch(value) is not None


def _check_target(value: str) -> str:
    if not is_target(value):
        raise problem(f"expected package.module:attribute, got {describe(value)}")
    return value


Case = Annotated[str, OneOf("case", lambda: CASES)]
Arch = Annotated[str, OneOf("architecture", ARCHES)]
Nesting = Annotated[str, OneOf("nesting", NESTINGS)]
Variant = Annotated[Text, AfterValidator(_check_variant)]
Target = Annotated[Text, AfterValidator(_check_target)]
Backend = Annotated[str, OneOf("backend", BACKENDS)]
Dtype = Annotated[str, OneOf("dtype", DTYPES)]
Data = Annotated[str, OneOf("kind of data", DATA_KINDS)]
Shape = Annotated[tuple[Positive, Positive, Positive], BeforeValidator(_check_shape)]

T = TypeVar("T")


def _check_list(value: object) -> object:
    if isinstance(value, list):
        return value
    hint = f": write [{value}]" if isinstance(value, YamlText) and not value.is_null else ""
    raise problem(f"expected a list of values, got {describe(value)}{hint}")


def _check_distinct(values: list[T]) -> list[T]:
    first: dict[T, int] = {}
    doubled = [index for index, value in enumerate(values) if first.setdefault(value, index) != index]
    if doubled:
        raise errors_at([("this value stands in the list already", (i,), values[i], None) for i in doubled])
    return values


def _one_or_many(value: object) -> str:
    return "<many>" if isinstance(value, list) else "<one>"


def _one_or_many_shapes(value: object) -> str:
    return "<many>" if isinstance(value, list) and any(isinstance(item, list) for item in value) else "<one>"


def _as_list(value: T) -> list[T]:
    return [value]


Values = Annotated[list[T], BeforeValidator(_check_list), Field(min_length=1), AfterValidator(_check_distinct)]
_Many = Annotated[list[T], Field(min_length=1), AfterValidator(_check_distinct), Tag("<many>")]
_One = Annotated[T, AfterValidator(_as_list), Tag("<one>")]
# Validated values are always lists; the union says what may be written.
AnyOf = Annotated[Union[_One[T], _Many[T]], Discriminator(_one_or_many)]
AnyShape = Annotated[Union[_One[Shape], _Many[Shape]], Discriminator(_one_or_many_shapes)]


class AxisValues(Strict):
    """One value for each axis that is named."""

    case: Case = absent()
    provider: Provider = absent()
    recipe: Recipe = absent()
    arch: Arch = absent()
    fullgraph: Boolean = absent()
    nesting: Nesting = absent()
    variant: Variant = absent("default: every variant that the case has")
    target: Target = absent("the user's own program, for the case target")
    backend: Backend = absent()
    dtype: Dtype = absent()
    shape: Shape = absent("M, K, N of the first layer")
    data: Data = absent()
    dynamic: Boolean = absent()
    seed: Natural = absent()


class AxisChoices(Strict):
    """One value, or several to run through, for each axis that is named."""

    case: AnyOf[Case] = absent()
    provider: AnyOf[Provider] = absent()
    recipe: AnyOf[Recipe] = absent()
    arch: AnyOf[Arch] = absent()
    fullgraph: AnyOf[Boolean] = absent()
    nesting: AnyOf[Nesting] = absent()
    variant: AnyOf[Variant] = absent()
    target: AnyOf[Target] = absent()
    backend: AnyOf[Backend] = absent()
    dtype: AnyOf[Dtype] = absent()
    shape: AnyShape = absent()
    data: AnyOf[Data] = absent()
    dynamic: AnyOf[Boolean] = absent()
    seed: AnyOf[Natural] = absent()


class AxisLists(Strict):
    """The values that each named axis runs through."""

    case: Values[Case] = absent()
    provider: Values[Provider] = absent()
    recipe: Values[Recipe] = absent()
    arch: Values[Arch] = absent()
    fullgraph: Values[Boolean] = absent()
    nesting: Values[Nesting] = absent()
    variant: Values[Variant] = absent()
    target: Values[Target] = absent()
    backend: Values[Backend] = absent()
    dtype: Values[Dtype] = absent()
    shape: Values[Shape] = absent()
    data: Values[Data] = absent()
    dynamic: Values[Boolean] = absent()
    seed: Values[Natural] = absent()


class AxisPattern(Strict):
    """Which cells are meant: exact values of the named axes, any of them where a list is given."""

    case: AnyOf[Case] = absent()
    provider: AnyOf[ProviderPattern] = absent()
    recipe: AnyOf[RecipePattern] = absent()
    arch: AnyOf[Arch] = absent()
    fullgraph: AnyOf[Boolean] = absent()
    nesting: AnyOf[Nesting] = absent()
    variant: AnyOf[Variant] = absent()
    target: AnyOf[Target] = absent()
    backend: AnyOf[Backend] = absent()
    dtype: AnyOf[Dtype] = absent()
    shape: AnyShape = absent()
    data: AnyOf[Data] = absent()
    dynamic: AnyOf[Boolean] = absent()
    seed: AnyOf[Natural] = absent()


def written(model: Strict) -> dict[str, Any]:
    """The axes that the user wrote, in the order of the schema."""
    return {name: getattr(model, name) for name in AXES if name in model.model_fields_set}


def spell(value: Any) -> str:
    """One axis value (or pattern) as it stands in ids."""
    if isinstance(value, (Spec, SpecPattern)):
        return value.label
    if isinstance(value, tuple):
        return "x".join(str(size) for size in value)
    return scalar_text(value)


_CALL = re.compile(r"([^()]+)\(([^()]*)\)")


def unspell(axis: str, text: str, place: Place) -> object:
    """A spelling as the YAML value that it abbreviates, for the validators above."""
    if axis == "shape":
        return [YamlText(size, place) for size in text.split("x")]
    call = _CALL.fullmatch(text) if axis in ("recipe", "provider") else None
    if call is None:
        return YamlText(text, place)
    pairs = (item.partition("=") for item in call[2].split(","))
    return {"name": YamlText(call[1], place), **{key: YamlText(value, place) for key, _, value in pairs}}


def split_values(text: str) -> list[str]:
    """``a,b(x=1,y=2)`` as ``["a", "b(x=1,y=2)"]``: commas inside parentheses belong to the value."""
    return re.split(r",(?![^(]*\))", text)
