"""A matrix file as pydantic models: the shape that is validated, documented and published as a JSON Schema."""

from __future__ import annotations

import datetime
import re
import warnings
from typing import Annotated, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, field_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from harness.plan.axes import AxisChoices, AxisLists, AxisPattern, AxisValues, spell, written
from harness.plan.recipes import Strict, absent
from harness.plan.scalars import Integer, NaturalOrNull, OneOf, Text, describe, problem
from harness.plan.specs import errors_at, located
from harness.types import SCHEMA_VERSION

KINDS = ("xfail", "quarantine")
PHASES = ("enter", "compile", "run")
REQUIRED_EVIDENCE = ("native", "emulated", "traced")

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_CLASS_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CHECK = re.compile(r"[a-z_]\w*\.[a-z_]\w*")


def _check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise problem(f"name {describe(value)}: letters, digits, '.', '_' and '-' only, as it names files")
    return value


def _check_class(value: str) -> str:
    if not _CLASS_NAME.fullmatch(value):
        raise problem(f"expected the name of an exception class, got {describe(value)}")
    return value


def _check_regex(value: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set" is about future Pythons, not about this matrix
            re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise problem(f"not a regular expression: {error}") from error
    return value


def _check_date(value: str) -> str:
    # The pattern first: date.fromisoformat accepts more spellings from Python 3.11 on.
    try:
        if _DATE.fullmatch(value):
            return datetime.date.fromisoformat(value).isoformat()
    except ValueError as error:
        raise problem(f"not a date: {describe(value)} ({error})") from error
    raise problem(f"expected a date YYYY-MM-DD, got {describe(value)}")


def _check_range(value: str) -> str:
    try:
        parsed = SpecifierSet(value)
    except InvalidSpecifier as error:
        hint = ": write '==" + value.strip() + "' or '>=…'" if re.fullmatch(r"\s*\d[\w.]*\s*", value) else ""
        raise problem(f"not a PEP 440 version range: {describe(value)}{hint}") from error
    if not len(parsed):
        raise problem(f"a version range that holds nothing: {describe(value)}")
    return value


def _check_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+\S*", value):
        raise problem(f"expected a URL (https://…), got {describe(value)}")
    return value


def _check_check(value: str) -> str:
    if not _CHECK.fullmatch(value):
        raise problem(f"expected the name of a check, such as error.refusal, got {describe(value)}")
    return value


def _check_version(value: int) -> int:
    if value != SCHEMA_VERSION:
        raise problem(f"schema_version {value} is not known: this version of the harness reads {SCHEMA_VERSION}")
    return value


def _check_not_empty(value: Strict) -> Strict:
    if not value.model_fields_set:
        is_axes = isinstance(value, (AxisValues, AxisChoices, AxisLists, AxisPattern))
        raise problem(f"empty: name at least one {'axis' if is_axes else 'of ' + ', '.join(type(value).model_fields)}")
    return value


Pattern = Annotated[AxisPattern, AfterValidator(_check_not_empty)]
Range = Annotated[Text, AfterValidator(_check_range)]


class BudgetEntry(Strict):
    """How many of each compile-time event are allowed; null: not judged. What isn't named keeps its default."""

    graph_breaks: NaturalOrNull = 0
    recompiles: NaturalOrNull = 0
    eager_frames: NaturalOrNull = 0
    graphs: NaturalOrNull = None


class RaisesEntry(Strict):
    """A documented error: the cell passes when it is raised in that phase, and is red when it isn't."""

    type: Annotated[Text, AfterValidator(_check_class)]
    match: Annotated[Text, AfterValidator(_check_regex)] = Field(
        description="regular expression, searched in every message of the exception chain"
    )
    phase: Annotated[str, OneOf("phase", PHASES)] = "compile"


class AdjustEntry(Strict):
    """Changes the cells that ``when`` matches."""

    when: Pattern
    set: Annotated[AxisValues, AfterValidator(_check_not_empty)]


class ExpectEntry(Strict):
    """What must hold for the cells that ``when`` matches; a later entry wins over an earlier one."""

    when: Pattern
    raises: RaisesEntry = absent()
    budgets: Annotated[BudgetEntry, AfterValidator(_check_not_empty)] = absent()


class Versions(Strict):
    """PEP 440 ranges; a waiver holds only where all of them do."""

    torch: Range = absent()
    te: Range = absent("Transformer Engine")
    cuda: Range = absent()


class WaiverEntry(Strict):
    """A known red, with the reason for it, where it is reported, who looks after it and until when."""

    kind: Annotated[str, OneOf("kind of waiver", KINDS)]
    when: Pattern
    versions: Annotated[Versions, AfterValidator(_check_not_empty)] = absent()
    checks: Annotated[list[Annotated[Text, AfterValidator(_check_check)]], Field(min_length=1)] = absent(
        "the only checks that may fail, such as error.refusal: any other finding leaves the cell red; default: any"
    )
    reason: Text
    url: Annotated[Text, AfterValidator(_check_url)] = absent("the public report, where there is one")
    owner: Text
    expires: Annotated[Text, AfterValidator(_check_date)] = Field(description="YYYY-MM-DD, the last day it holds")

    @field_validator("when")
    @classmethod
    def _arch_is_resolved(cls, value: AxisPattern) -> AxisPattern:
        if "host" in written(value).get("arch", ()):
            message = "a waiver names the architecture that 'host' turns out to be: cpu, sm90, …, never host"
            raise located(message, ("arch",), "host")
        return value


class _WaiverItems:
    """Paths of waiver files stand among the entries in the YAML; they are read before validation."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(schema)
        path = {"type": "string", "description": "a YAML list of waivers, relative to this file"}
        result["items"] = {"anyOf": [path, result["items"]]}
        return result


def _check_entries(value: object) -> object:
    if not isinstance(value, list):
        raise problem(f"expected a list of entries, got {describe(value)}: start each entry with '- '")
    return value


Entries = BeforeValidator(_check_entries)


Version = Annotated[Integer, AfterValidator(_check_version), Field(json_schema_extra={"const": 1})]


class MatrixModel(Strict):
    """A matrix: which cells run, and what is demanded of them."""

    schema_version: Version
    name: Annotated[Text, AfterValidator(_check_name)] = absent("default: the file's name without its ending")
    require: Annotated[str, OneOf("evidence level", REQUIRED_EVIDENCE)] = Field(
        default="emulated", description="each supported recipe passes at least one cell at this level or better"
    )
    defaults: AxisValues = Field(default=AxisValues(), description="for axes that matrix or an include doesn't name")
    matrix: Annotated[AxisLists, AfterValidator(_check_not_empty)] = absent(
        "every combination of these values is a cell"
    )
    exclude: Annotated[list[Pattern], Entries] = Field(
        default=[], description="combinations that are left out; one that matches none is an error"
    )
    include: Annotated[list[Annotated[AxisChoices, AfterValidator(_check_not_empty)]], Entries] = Field(
        default=[],
        description="more cells: one for each entry, or for each combination of the lists in it; a cell that is there "
        "already is an error",
    )
    adjust: Annotated[list[AdjustEntry], Entries] = Field(
        default=[], description="applied in order, to included cells too"
    )
    budgets: BudgetEntry = BudgetEntry()
    expect: Annotated[list[ExpectEntry], Entries] = Field(default=[])
    waivers: Annotated[list[WaiverEntry], Entries, _WaiverItems()] = Field(default=[])

    @field_validator("expect")
    @classmethod
    def _expects_something(cls, entries: list[ExpectEntry]) -> list[ExpectEntry]:
        idle = [i for i, entry in enumerate(entries) if entry.model_fields_set == {"when"}]
        if idle:
            raise errors_at([("expects nothing: give it raises or budgets", (i,), None, None) for i in idle])
        return entries


def pattern_of(model: AxisPattern) -> dict[str, tuple[Any, ...]]:
    """Axis to the values that are meant, any of them."""
    return {axis: tuple(values) for axis, values in written(model).items()}


def spelled(pattern: dict[str, tuple[Any, ...]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A pattern in plain text, as waivers carry it."""
    return tuple((axis, tuple(spell(value) for value in values)) for axis, values in pattern.items())
