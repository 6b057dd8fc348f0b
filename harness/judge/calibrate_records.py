"""What a calibration writes down: one header for each run, one record for each cell, as JSON lines.

Records are appended as cells finish, so that an interrupted run keeps what it measured.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.judge.calibrate_catalogue import Name
from harness.serialize import to_jsonable


class NotARecord(Exception):
    """A file that no calibration wrote; the message says file and line."""


@dataclass(frozen=True)
class Met:
    """One part of a check in one cell: ``count`` comparisons; ``worst`` value / bound and where, None for an equality.

    ``worst`` is infinite where the value was NaN.
    """

    check: str
    part: str
    count: int
    worst: float | None = None
    where: str = ""

    @property
    def name(self) -> Name:
        return self.check, self.part


@dataclass(frozen=True)
class Measured:
    """One good run. ``findings`` in words: there should be none. Not ``judged``: ``notes`` say why.

    ``backend`` is "none" where nothing was compiled; ``shape`` is "M,K,N".
    """

    cell: str
    provider: str
    recipe: str
    nesting: str
    data: str
    seed: int
    shape: str
    dtype: str
    backend: str
    evidence: str
    judged: bool
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    met: tuple[Met, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """What was asked for and can't be calibrated here: ``cells`` combinations, and the reason."""

    provider: str
    recipe: str
    what: str
    reason: str
    cells: int


@dataclass(frozen=True)
class Header:
    """A run: the machine (``arch`` and the GPU's name, or "cpu"), when and how it was started, what was planned."""

    machine: str
    date: str
    command: str
    versions: Mapping[str, str]
    hardware: str
    planned: int
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """One run with what it measured so far."""

    header: Header
    cells: tuple[Measured, ...]

    @property
    def judged(self) -> Sequence[Measured]:
        return [cell for cell in self.cells if cell.judged]


def write_line(stream: IO[str], kind: str, record: object) -> None:
    """Append one record and hand it to the operating system."""
    stream.write(json.dumps({kind: to_jsonable(record)}, ensure_ascii=False, allow_nan=False) + "\n")
    stream.flush()


def read(path: Path) -> Calibration:
    """A run from its file; a last line that was cut off is left out.

    Raises:
        NotARecord: the file is not one that :func:`write_line` made.
        OSError: it can't be read.
    """
    values = read_lines(path)
    try:
        return _calibration(values)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise NotARecord(f"{path}: not written by harness.judge.calibrate: {error!r}") from error


def read_lines(path: Path) -> Sequence[Mapping[str, Any]]:
    """The records of a file, one for each line; a last line that was cut off is left out.

    Raises:
        NotARecord: it is empty, or another line holds no object.
        OSError: it can't be read.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    values: list[Mapping[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            if number == len(lines) and number > 1:
                break
            raise NotARecord(f"{path}:{number}: {error}") from error
        if not isinstance(value, Mapping):
            raise NotARecord(f"{path}:{number}: not an object")
        values.append(value)
    if not values:
        raise NotARecord(f"{path}: empty")
    return values


def _calibration(values: Sequence[Mapping[str, Any]]) -> Calibration:
    header = made(Header, values[0]["run"])
    skipped = tuple(made(Skipped, item) for item in header.skipped)
    return Calibration(dataclasses.replace(header, skipped=skipped), tuple(_cells(values[1:])))


def _cells(values: Iterable[Mapping[str, Any]]) -> Iterable[Measured]:
    for value in values:
        cell = made(Measured, value["cell"])
        met = tuple(made(Met, {**item, "worst": _number(item["worst"])}) for item in cell.met)
        yield dataclasses.replace(cell, findings=tuple(cell.findings), notes=tuple(cell.notes), met=met)


def made(cls: Any, value: Any) -> Any:
    """A dataclass from one record's fields; fields that it lacks are left out."""
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{key: item for key, item in value.items() if key in known})


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
