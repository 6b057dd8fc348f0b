"""What a scalar may be, decided by the field it is given to; each refusal says what was expected and what stood there.

Booleans are ``true`` and ``false`` alone (YAML 1.2.2, 10.3.2, lower case): ``yes``, ``no``, ``on`` and ``off`` are
refused rather than guessed. The same converters read the values of cell ids and of ``--set``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from harness.plan.nearest import quoted, unknown
from harness.plan.yamlfile import YamlText

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}
_LOOSE_BOOLEANS = {"yes": "true", "y": "true", "on": "true", "no": "false", "n": "false", "off": "false"}


def problem(message: str, near: str | None = None) -> PydanticCustomError:
    """The error that validators raise: ``harness/plan/explain.py`` gives it its place."""
    return PydanticCustomError("plan", "{message}", {"message": message, "nearest": near})


def describe(value: object) -> str:
    """What stood in the file, in words."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if value is None or (isinstance(value, YamlText) and value.is_null):
        return "nothing"
    shown = quoted(str(value))
    return shown if not isinstance(value, str) or getattr(value, "plain", True) else f"the string {shown}"


def _unquote_hint(value: object, is_wanted: Callable[[str], object]) -> str:
    quoted = isinstance(value, YamlText) and not value.plain
    return ": remove the quotes" if quoted and is_wanted(str(value)) else ""


def to_bool(value: object) -> object:
    if isinstance(value, bool):
        return value
    text = str(value)
    if isinstance(value, YamlText) and value.plain and text in _BOOLEANS:
        return _BOOLEANS[text]
    hint = _unquote_hint(value, _BOOLEANS.__contains__)
    lowered = text.lower() if isinstance(value, str) and not hint else ""
    near = lowered if lowered in _BOOLEANS else _LOOSE_BOOLEANS.get(lowered)
    raise problem(f"expected true or false, got {describe(value)}{hint}", near)


def to_int(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, YamlText) and value.plain and _INTEGER.fullmatch(value):
        return int(value)
    raise problem(f"expected an integer, got {describe(value)}{_unquote_hint(value, _INTEGER.fullmatch)}")


def to_float(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, YamlText) and value.plain and _FLOAT.fullmatch(value) and math.isfinite(float(value)):
        return float(value)
    raise problem(f"expected a finite number, got {describe(value)}{_unquote_hint(value, _FLOAT.fullmatch)}")


def to_text(value: object) -> object:
    if not isinstance(value, str) or (isinstance(value, YamlText) and value.is_null):
        raise problem(f"expected text, got {describe(value)}")
    if not value.strip():
        raise problem("expected text, got an empty string")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise problem(f"half of a surrogate pair is not text: {describe(value)}")
    return str(value)


@dataclass(frozen=True)
class Bounded:
    """A number from ``minimum`` to below ``limit``; checked here, so that the message is ours on each pydantic."""

    convert: Callable[[object], Any]
    minimum: int
    limit: float = math.inf

    def check(self, value: object) -> object:
        number = self.convert(value)
        if number < self.minimum:
            raise problem(f"expected at least {self.minimum}, got {describe(value)}")
        if number >= self.limit:
            raise problem(f"expected less than {self.limit}, got {describe(value)}")
        return number

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "minimum": self.minimum}


def _as_none(value: object) -> object:
    return None if isinstance(value, YamlText) and value.is_null else value


Boolean = Annotated[bool, BeforeValidator(to_bool)]
Integer = Annotated[int, Bounded(to_int, -(2**31), 2**31)]
Positive = Annotated[int, Bounded(to_int, 1, 2**31)]
Natural = Annotated[int, Bounded(to_int, 0, 2**63)]
NaturalOrNull = Annotated[Annotated[int, Bounded(to_int, 0, 2**31)] | None, BeforeValidator(_as_none)]
NonNegativeFloat = Annotated[float, Bounded(to_float, 0)]
Text = Annotated[str, BeforeValidator(to_text)]


@dataclass(frozen=True)
class OneOf:
    """A name out of a table. ``what`` is the word for it in messages.

    ``names`` is a function when the table can grow by registration; such a table isn't enumerated in the JSON Schema,
    so that registering a case needs no change of a generated file.
    """

    what: str
    names: tuple[str, ...] | Callable[[], Iterable[str]]

    def check(self, value: object) -> str:
        names = tuple(self.names() if callable(self.names) else self.names)
        if not isinstance(value, str) or (isinstance(value, YamlText) and value.is_null):
            raise problem(f"expected {_article(self.what)}, got {describe(value)}")
        if value in names:
            return str(value)
        raise problem(*unknown(self.what, value, names))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(schema)
        if isinstance(self.names, tuple):
            result["enum"] = list(self.names)
        return result


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
