"""CellResult, Cell and Finding to JSON values and back, one place for every reader and writer of results."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from typing import Any

from harness.types import Attempt, CellResult, Evidence, Finding, Verdict


def to_jsonable(value: Any) -> Any:
    """Plain JSON values from dataclasses, enums, mappings and sequences.

    NaN and infinities become the strings "nan", "inf", "-inf": JSON has no word for them, and a report that loses one
    hides a failure.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [to_jsonable(item) for item in items]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def result_to_line(result: CellResult) -> str:
    """One line of results.jsonl, without its newline."""
    return json.dumps(to_jsonable(result), ensure_ascii=False, allow_nan=False)


def result_from_dict(data: Mapping[str, Any]) -> CellResult:
    """A result from one parsed line; unknown keys (of a newer minor version) are ignored.

    Raises:
        KeyError, ValueError, TypeError: the line is not a result.
    """
    known = {f.name for f in dataclasses.fields(CellResult)}
    values = {key: value for key, value in data.items() if key in known}
    values["verdict"] = Verdict(values["verdict"])
    values["evidence"] = Evidence(values["evidence"])
    values["findings"] = tuple(Finding(**item) for item in values.get("findings", ()))
    values["attempts"] = tuple(
        Attempt(**{**item, "verdict": Verdict(item["verdict"])}) for item in values.get("attempts", ())
    )
    for name in ("checks", "notes"):
        values[name] = tuple(values.get(name, ()))
    return CellResult(**values)


def result_from_line(line: str) -> CellResult:
    """Inverse of :func:`result_to_line`.

    Raises:
        ValueError: the line is cut short or is not a result.
    """
    try:
        data = json.loads(line)
        return result_from_dict(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a cell result: {error}") from error
