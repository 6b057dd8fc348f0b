"""What a run is to do, as files in its directory: written once by whoever planned, read by every process.

Workers read cells from here instead of planning again: all processes then agree, also when the user edits the matrix
while it runs, and a worker starts without pydantic.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import shutil
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.baseline import BaselineUse
from harness.run.gpus import Gpu
from harness.serialize import to_jsonable
from harness.types import Cell

MATRIX_COPY = "matrix.yaml"


@dataclass(frozen=True)
class RunPlan:
    """A whole run and how it was started. ``cells`` are the selected ones, in the plan's order.

    ``timeout``: seconds a cell may take; ``isolate``: a process for every cell; ``maxfail``: stop after that many reds
    (0: never); ``overrides``: ``--set`` as given, for repro commands; ``workers``: processes, 0 for pytest's own;
    ``env``: the environment variables that matter; ``started``: ISO 8601 with an offset; ``baseline``: what the run is
    held against, whole: an edit of the file while it runs changes nothing; ``gpus``: those that its processes may
    lease.
    """

    run_id: str
    matrix: str  # path as the user gave it
    name: str
    require: str
    cells: tuple[Cell, ...]
    planned: int  # cells of the full plan
    timeout: float
    isolate: bool = False
    maxfail: int = 0
    overrides: tuple[str, ...] = ()
    workers: int = 0
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    notes: tuple[str, ...] = ()
    baseline: BaselineUse | None = None
    gpus: tuple[Gpu, ...] = ()

    @property
    def by_id(self) -> Mapping[str, Cell]:
        return {cell.id: cell for cell in self.cells}


@dataclass(frozen=True)
class Round:
    """One start of pytest: which cells, in which order, and whether this is their first attempt or their second."""

    number: int
    ids: tuple[str, ...]
    attempt: int = 1


def write_plan(path: Path, plan: RunPlan) -> None:
    """Write the plan, and beside it the matrix as it was: later rounds and readers must not see a later edit.

    Raises:
        OSError: not writable, or the matrix can't be read.
    """
    shutil.copyfile(plan.matrix, path.with_name(MATRIX_COPY))
    rewrite_plan(path, plan)


def rewrite_plan(path: Path, plan: RunPlan) -> None:
    """Write the plan alone, where it became another one (pytest's own -k); the copy of the matrix stays as it was.

    Raises:
        OSError: not writable.
    """
    path.write_text(json.dumps(to_jsonable(plan), indent=1), encoding="utf-8")


def read_plan(path: Path) -> RunPlan:
    """Inverse of :func:`write_plan`.

    Raises:
        OSError: no such file.
        ValueError: not a plan.
    """
    plan: RunPlan = _read(path, RunPlan)
    return plan


def write_round(path: Path, entry: Round) -> None:
    """Raises OSError."""
    path.write_text(json.dumps(to_jsonable(entry)), encoding="utf-8")


def read_round(path: Path) -> Round:
    """Inverse of :func:`write_round`. Raises OSError and ValueError as :func:`read_plan` does."""
    entry: Round = _read(path, Round)
    return entry


def _read(path: Path, kind: type) -> Any:
    try:
        return decode(kind, json.loads(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a {kind.__name__}: {error}") from error


def decode(kind: Any, value: Any) -> Any:
    """A value of the annotated type ``kind`` from its JSON form: dataclasses, tuples, mappings, unions with None."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        known = {f.name for f in dataclasses.fields(kind)}
        return typing.cast(type, kind)(**{k: decode(hints[k], v) for k, v in value.items() if k in known})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(arguments, value)
    if origin is tuple:
        kinds: Sequence[Any] = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(decode(item_kind, item) for item_kind, item in zip(kinds, value, strict=True))
    if origin is collections.abc.Mapping:
        return {key: decode(arguments[1], item) for key, item in value.items()}
    return tuple(value) if kind is Any and isinstance(value, list) else value


def _decode_union(arguments: tuple[Any, ...], value: Any) -> Any:
    """A union here is ``X | None``, or scalars that JSON keeps apart by itself."""
    present = [argument for argument in arguments if argument is not type(None)]
    return value if value is None or len(present) > 1 else decode(present[0], value)
