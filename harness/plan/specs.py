"""Recipes and providers as a matrix names them, ``x`` or ``{name: x, field: …}``, and the patterns that match them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from harness.faults import FAULTS, path_of
from harness.faults.elsewhere import ELSEWHERE, ONLY_REFERENCE, works_on
from harness.plan.nearest import quoted, unknown
from harness.plan.recipes import RECIPE_MODELS, Named, Strict
from harness.plan.scalars import describe, problem
from harness.plan.settings import PROVIDER_MODELS, ProviderSettings
from harness.plan.yamlfile import YamlText
from harness.providers import PROVIDERS
from harness.providers.load import split_faults
from harness.types import Spec


def located(message: str, loc: tuple[str | int, ...], value: object, near: str | None = None) -> ValidationError:
    """An error about a part of the value being validated, which a plain ``problem`` can't name."""
    return errors_at([(message, loc, value, near)])


def errors_at(items: Iterable[tuple[str, tuple[str | int, ...], object, str | None]]) -> ValidationError:
    """Several errors of one validator: (message, location below the value, value there, nearest name)."""
    details = [InitErrorDetails(type=problem(text, near), loc=loc, input=value) for text, loc, value, near in items]
    return ValidationError.from_exception_data("plan", details)


def _named(value: object, what: str) -> Mapping[str, Any]:
    """``x`` or ``{name: x, field: …}`` as the mapping, its name certain to be text."""
    if isinstance(value, Spec):
        return {"name": value.name, **value.as_dict()}
    if isinstance(value, str) and not (isinstance(value, YamlText) and value.is_null):
        return {"name": str(value)}
    if not isinstance(value, Mapping):
        raise problem(f"expected a {what} (a name, or {{name: …, field: …}}), got {describe(value)}")
    name = value.get("name")
    if "name" in value and not isinstance(name, str):
        raise located(f"expected a {what}'s name, got {describe(name)}", ("name",), name)
    if "name" not in value:
        raise problem(f"missing key 'name': a {what} with fields is {{name: …, field: …}}")
    return {**value, "name": str(name)}  # pydantic 2.6 takes no subclass of str for a Literal


def _as_spec(model: Named) -> Spec:
    """Only what the user wrote, so that a label never changes when a default does."""
    fields = sorted(model.model_fields_set - {"name"})
    return Spec(model.name, tuple((name, getattr(model, name)) for name in fields))


def read_recipe(value: object) -> Spec:
    mapping = _named(value, "recipe")
    name = mapping["name"]
    if name not in RECIPE_MODELS:
        message, near = unknown("recipe", name, RECIPE_MODELS)
        raise located(message, ("name",), name, near)
    return _as_spec(RECIPE_MODELS[name].model_validate(mapping))


def read_provider(value: object) -> Spec:
    mapping = _named(value, "provider")
    name = mapping["name"]
    base, faults = split_faults(name)
    if base not in PROVIDERS:
        message, near = unknown("provider", base, PROVIDERS)
        raise located(message, ("name",), name, near)
    for position, fault in enumerate(faults):
        if fault not in FAULTS and path_of(fault) is None:
            message, near = unknown("fault", fault, FAULTS)
            raise located(message, ("name",), name, near)
        if fault in faults[:position]:
            raise located(f"fault {quoted(fault)} is named twice", ("name",), name)
        if fault in FAULTS and not works_on(fault, base):
            there = ", ".join(ELSEWHERE.get(fault, ONLY_REFERENCE))
            raise located(f"fault {quoted(fault)} breaks nothing of {base}: it works on {there}", ("name",), name)
    return _as_spec(PROVIDER_MODELS.get(base, ProviderSettings).model_validate(mapping))


@dataclass(frozen=True)
class SpecPattern:
    """What a recipe or provider must be: of this name with any fields, or (``exact``) with exactly these fields."""

    spec: Spec
    exact: bool

    def matches(self, spec: Spec) -> bool:
        return self.spec == spec if self.exact else self.spec.name == spec.name

    @property
    def label(self) -> str:
        return self.spec.label


@dataclass(frozen=True)
class _Documented:
    """Reads with ``read``; in the JSON Schema it is one of ``names``, or a mapping of one of ``models``.

    ``names`` is empty where names can be registered: they are then any text.
    """

    read: Callable[[object], Any]
    names: tuple[str, ...]
    models: tuple[type[Strict], ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # The models stand in the schema for its documentation: ``read`` picks the one of that name itself.
        documented = handler.generate_schema(Union[self.models])
        return core_schema.no_info_wrap_validator_function(lambda value, _: self.read(value), documented)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = handler(schema)
        name: dict[str, Any] = {"type": "string", **({"enum": list(self.names)} if self.names else {})}
        return {"anyOf": [name, *mapping.get("anyOf", [mapping])]}

    def pattern(self) -> _Documented:
        def read(value: object) -> SpecPattern:
            return SpecPattern(self.read(value), exact=isinstance(value, Mapping))

        return _Documented(read, self.names, self.models)


_RECIPE = _Documented(read_recipe, tuple(RECIPE_MODELS), tuple(RECIPE_MODELS.values()))
_PROVIDER = _Documented(read_provider, (), (ProviderSettings, *PROVIDER_MODELS.values()))

Recipe = Annotated[Spec, _RECIPE]
Provider = Annotated[Spec, _PROVIDER]
RecipePattern = Annotated[SpecPattern, _RECIPE.pattern()]
ProviderPattern = Annotated[SpecPattern, _PROVIDER.pattern()]
