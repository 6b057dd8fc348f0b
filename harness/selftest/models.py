"""What a selftest file holds, as pydantic models, and how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from harness.faults import FAULTS, FRONT_FAULTS, path_of
from harness.plan.axes import AxisChoices
from harness.plan.errors import MatrixErrors
from harness.plan.explain import explain
from harness.plan.load import read_document
from harness.plan.models import Entries, Version
from harness.plan.nearest import quoted, unknown
from harness.plan.recipes import Strict, absent
from harness.plan.scalars import Text, describe, problem
from harness.plan.specs import errors_at
from harness.plan.yamlfile import YamlMap, YamlText
from harness.selftest.checks import known_checks

ALL = "all"
_OF_A_MATRIX = ("matrix", "include", "defaults", "expect")


def registered() -> tuple[str, ...]:
    """Names of every seeded fault, those of the front last."""
    return (*sorted(FAULTS), *sorted(FRONT_FAULTS))


def _check_fault(name: str) -> str:
    if path_of(name) is None and name not in FRONT_FAULTS:
        raise problem(*unknown_fault(name))
    return name


def unknown_fault(name: str) -> tuple[str, str | None]:
    """What is told of a name that no fault can have, and the nearest that one has."""
    message, near = unknown("fault", name, registered())
    if near:
        return message, near
    module, colon, _ = name.partition(":")
    form = "an import path is package.module:FAULT" if colon and module else "unregistered: package.module:FAULT"
    return f"unknown fault {quoted(name)} ({form})", None


def _check_fault_or_all(name: str) -> str:
    return name if name == ALL else _check_fault(name)


def _listed(value: object) -> object:
    """A list of what stood there: its items keep their positions, which is how each finds its place in the file."""
    if isinstance(value, str) and not _is_null(value):
        value = [value]
    if not isinstance(value, list):
        raise problem(f"expected {ALL} or a list of faults, got {describe(value)}")
    wrong = [i for i, item in enumerate(value) if not isinstance(item, str) or _is_null(item)]
    if wrong:
        raise errors_at([(f"expected a fault's name, got {describe(value[i])}", (i,), value[i], None) for i in wrong])
    return value


def _is_null(item: str) -> bool:
    return isinstance(item, YamlText) and item.is_null


def _spread(names: list[str]) -> list[str]:
    """``all`` alone or in a list stands for every registered fault; a fault is taken once."""
    if ALL not in names:
        return list(dict.fromkeys(names))
    return list(dict.fromkeys((*registered(), *(name for name in names if name != ALL))))


FaultName = Annotated[Text, AfterValidator(_check_fault)]
FaultOrAll = Annotated[Text, AfterValidator(_check_fault_or_all)]
FaultNames = Annotated[list[FaultOrAll], BeforeValidator(_listed), Field(min_length=1), AfterValidator(_spread)]


def _check_crossable(name: str) -> str:
    if name in FRONT_FAULTS:
        raise problem(f"{name} is a fault of the harness's front: it has no cell")
    return name


def _check_check(name: str) -> str:
    known = known_checks()
    if name not in known:
        raise problem(*unknown("check", name, known))
    return name


class CrossEntry(AxisChoices):
    """Further cells in which one fault must show: its own cell with these axis values in place of its own."""

    fault: Annotated[FaultName, AfterValidator(_check_crossable)]
    caught_by: Annotated[Text, AfterValidator(_check_check)] = absent(
        "the check that must turn red there; default: the one that the fault names"
    )


class SelftestModel(Strict):
    """A selftest: which faults, and in which cells besides their own."""

    schema_version: Version
    faults: FaultNames = Field(description="all, or names and import paths (package.module:FAULT)")
    cross: Annotated[list[CrossEntry], Entries] = Field(default=[], description="more cells for some of them")


def read_selftest(path: str | Path) -> tuple[SelftestModel, YamlMap, str]:
    """The selftest at ``path`` (looked up as a matrix is), its data with places, and the path as it was found.

    Raises:
        MatrixErrors: everything that is wrong with it, with file:line:column.
    """
    data, file = read_document(path, "a selftest file starts with schema_version: 1 and faults: all")
    if "faults" not in data and (matrix := next((key for key in _OF_A_MATRIX if key in data), None)):
        told = f"key {matrix!r} makes this a run matrix: runner.py --matrix FILE; a selftest file names faults"
        raise MatrixErrors([data.key_places[matrix].error(told)])
    try:
        return SelftestModel.model_validate(data), data, file
    except ValidationError as error:
        raise MatrixErrors(explain(error, data, keys=tuple(SelftestModel.model_fields))) from error


def axes_of(entry: CrossEntry) -> dict[str, Any]:
    """The axis values that ``entry`` writes, as a matrix's ``include`` takes them."""
    return {name: value for name, value in entry if name in entry.model_fields_set - {"fault", "caught_by"}}
