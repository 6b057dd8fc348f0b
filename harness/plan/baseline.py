"""A baseline's file, and what it adds to a plan. A baseline is a budget measured earlier (docs/baselines.md)."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.baseline import BUDGETED, COUNTS, Baseline, BaselineCell, BaselineUse, Environment
from harness.plan.errors import MatrixError, MatrixErrors
from harness.plan.jsonplace import JsonPlaces, Step
from harness.plan.scalars import describe
from harness.plan.types import Plan, make_plan
from harness.plan.yamlfile import Place
from harness.serialize import to_jsonable
from harness.types import ARCHES, SCHEMA_VERSION, Budgets, Cell

_BASELINE: TypeAdapter[Baseline] = TypeAdapter(Baseline)


@dataclasses.dataclass(frozen=True)
class BaselineFile:
    """A baseline, and the line of each entry by id."""

    baseline: Baseline
    lines: Mapping[str, int]


def read_baseline(path: Path) -> BaselineFile:
    """The baseline in the file ``path``.

    Raises:
        MatrixErrors: no such file, not JSON, not a baseline; each mistake with file:line:column. Fields that this
            version doesn't know are ignored, as in every published format.
    """
    file = str(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        hint = "make it with --update-baseline"
        raise MatrixErrors([MatrixError(file, 0, 0, f"no such baseline: {hint}")]) from None
    except UnicodeDecodeError as error:
        raise MatrixErrors([MatrixError(file, 0, 0, f"not UTF-8: byte 0x{error.object[error.start]:02x}")]) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise MatrixErrors([MatrixError(file, 0, 0, f"cannot be read: {reason}")]) from error
    return baseline_from_text(text, file)


def baseline_from_text(text: str, file: str) -> BaselineFile:
    """As :func:`read_baseline`, from the content of ``file``."""
    places = JsonPlaces(text, file)
    data = _parse(text, places, file)
    _check_version(data, places)
    try:
        baseline = _BASELINE.validate_json(text, strict=True)
    except ValidationError as error:
        raise MatrixErrors([_explained(one, data, places) for one in error.errors()]) from error
    positions = places.elements(("cells",))
    errors = [*_wrong_environment(baseline, places), *_wrong_cells(baseline.cells, positions)]
    if errors:
        raise MatrixErrors(errors)
    pairs = zip(baseline.cells, positions, strict=True)
    return BaselineFile(baseline, {cell.id: place.line for cell, place in pairs})


def _parse(text: str, places: JsonPlaces, file: str) -> Any:
    try:
        data = json.loads(text)
        doubled = places.doubled()
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise MatrixErrors([MatrixError(file, error.lineno, error.colno, message)]) from error
    except (ValueError, RecursionError) as error:  # a number of too many digits, or brackets without end
        raise MatrixErrors([MatrixError(file, 0, 0, f"not a baseline: {error}")]) from error
    if doubled is not None:
        raise MatrixErrors([doubled[1].error(f"the key {doubled[0]!r} stands twice in one object")])
    return data


def _check_version(data: Any, places: JsonPlaces) -> None:
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION or isinstance(version, bool):
        what = "not a baseline: no schema_version" if version is None else f"schema_version {version!r} is not known"
        message = f"{what} (this version of the harness reads {SCHEMA_VERSION})"
        raise MatrixErrors([places.of(("schema_version",)).error(message)])


def _explained(error: Any, data: Any, places: JsonPlaces) -> MatrixError:
    path: tuple[Step, ...] = tuple(error["loc"])
    where = _shown_path(path, data)
    if error["type"] == "missing":
        return places.of(path[:-1]).error(f"{where}: missing")
    message = error["msg"][:1].lower() + error["msg"][1:]
    return places.of(path).error(f"{where}: {message}, got {describe(error['input'])}")


def _shown_path(path: Sequence[Step], data: Any) -> str:
    """``cells[3].graphs of toy_linear[...]``: a cell is found by its id sooner than by its number."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    cell = data["cells"][path[1]] if len(path) > 2 and path[0] == "cells" else None
    name = cell.get("id") if isinstance(cell, dict) else None
    return f"{text} of {name}" if isinstance(name, str) else text


def _wrong_environment(baseline: Baseline, places: JsonPlaces) -> Iterator[MatrixError]:
    if baseline.environment.arch not in ARCHES or baseline.environment.arch == "host":
        place = places.of(("environment", "arch"))
        known = ", ".join(arch for arch in ARCHES if arch != "host")
        yield place.error(f"environment.arch: expected one of {known}, got {describe(baseline.environment.arch)}")


def _wrong_cells(cells: Sequence[BaselineCell], positions: Sequence[Place]) -> Iterator[MatrixError]:
    first: dict[str, Place] = {}
    for cell, place in zip(cells, positions, strict=True):
        if cell.id in first:
            yield place.error(f"{cell.id} stands twice (first on line {first[cell.id].line})")
        first.setdefault(cell.id, place)
        for name in (*COUNTS, "fp8_gemms"):
            count = getattr(cell, name)
            if count is not None and count < 0:
                yield place.error(f"{name} of {cell.id}: expected a count or null, got {count}")


def baseline_text(baseline: Baseline) -> str:
    """The file: a head, then one line for each cell, sorted by id, so that a diff names the cells that changed."""
    cells = [json.dumps(_cell_record(cell), ensure_ascii=False) for cell in sorted(baseline.cells, key=lambda c: c.id)]
    environment = {**to_jsonable(baseline.environment), "versions": dict(sorted(baseline.environment.versions.items()))}
    head = {"schema_version": baseline.schema_version, "matrix": baseline.matrix, "environment": environment}
    lines = [f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}," for name, value in head.items()]
    body = ",\n".join(f"  {cell}" for cell in cells)
    return "\n".join(["{", *lines, ' "cells": [', *([body] if body else []), " ]", "}", ""])


def _cell_record(cell: BaselineCell) -> dict[str, Any]:
    record: dict[str, Any] = to_jsonable(cell)
    if cell.environment is None:
        del record["environment"]
    return record


def with_baseline(plan: Plan, use: BaselineUse) -> Plan:
    """The plan with what the baseline measured as a limit of each cell that passed then; ``Cell.origin`` says so.

    A budget that is not judged (null) doesn't lift it: whoever names a baseline asks for that. A cell that was an
    expected failure may change in any direction when it is mended, so its limits are the matrix's own.
    """
    known = {cell.id: cell for cell in use.baseline.cells if cell.verdict == "pass"}
    cells = [_limited(cell, known[cell.id], use.file) if cell.id in known else cell for cell in plan.cells]
    return make_plan(plan.name, plan.path, plan.require, cells, plan.notes)


def _limited(cell: Cell, measured: BaselineCell, file: str) -> Cell:
    limits = {name: getattr(measured, name) for name in BUDGETED}
    origin = {f"limits.{name}": f"baseline {file}" for name, count in limits.items() if count is not None}
    expect = dataclasses.replace(cell.expect, baseline=Budgets(**limits))
    return dataclasses.replace(cell, expect=expect, origin={**cell.origin, **origin})


def baseline_use(found: BaselineFile, file: str, plan: Plan, here: Environment, gone_because: str = "") -> BaselineUse:
    """The baseline as a run of ``plan`` (the full one) on this machine uses it.

    Raises:
        MatrixErrors: it is another matrix's, or another architecture's: neither can be compared.
    """
    baseline = found.baseline
    error = functools.partial(MatrixError, file, 0, 0)
    if baseline.matrix != plan.name:
        message = f"is the baseline of the matrix {baseline.matrix}, not of {plan.name} ({plan.path})"
        raise MatrixErrors([error(message)])
    if baseline.environment.arch != here.arch:
        was, now = baseline.environment.arch, here.arch
        message = f"was measured on {was}, and this machine is {now}: a baseline holds for one architecture"
        raise MatrixErrors([error(f"{message}; make one for {now} with --update-baseline and another file")])
    planned = {cell.id for cell in plan.cells}
    gone = tuple(cell.id for cell in baseline.cells if cell.id not in planned)
    return BaselineUse(file, baseline, here, found.lines, gone, gone_because)
