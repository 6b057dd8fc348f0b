"""results.jsonl and run.json: written whole or not at all, and read back with every defect named.

A report that is cut short, doubled or of an unknown version must never be read as a smaller green one, so the readers
refuse instead of skipping. A file that was cut exactly between two lines, or edited, looks whole by itself; run.json
holds the totals, and :func:`read_results` compares.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.report.require import LEVELS
from harness.report.run_info import RunInfo, run_record, totals
from harness.serialize import result_from_dict, result_to_line, to_jsonable
from harness.types import SCHEMA_VERSION, CellResult

RESULTS = "results.jsonl"
RUN = "run.json"


class StoreError(ValueError):
    """A stored run can't be read or written; the message names file, line and what is wrong."""


def write_text_atomically(path: Path, chunks: Iterable[str]) -> None:
    """Write UTF-8 text to ``path`` through a temporary name beside it, synced before it is renamed.

    Readers see the old file or the new one, never a part. Lone surrogates, which UTF-8 can't hold, are escaped.

    Raises:
        OSError: the directory can't be written; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            stream.writelines(chunks)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    # The rename itself is durable only once the directory is; platforms that can't open a directory lose just that.
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_results(directory: Path, results: Sequence[CellResult]) -> None:
    """Write results.jsonl, one line a result in the order given (the plan's).

    Raises:
        StoreError: an id stands twice.
        OSError: the directory can't be written.
    """
    seen: set[str] = set()
    for result in results:
        if result.id in seen:
            raise StoreError(f"{result.id} was reported twice: not written")
        seen.add(result.id)
    write_text_atomically(directory / RESULTS, (result_to_line(result) + "\n" for result in results))


def write_run(directory: Path, run: RunInfo, results: Sequence[CellResult]) -> None:
    """Write run.json: the run with its totals and blame.

    Raises:
        OSError: the directory can't be written.
    """
    text = json.dumps(to_jsonable(run_record(run, results)), indent=2, ensure_ascii=False, allow_nan=False)
    write_text_atomically(directory / RUN, (text, "\n"))


def read_run(directory: Path) -> RunInfo:
    """The run of run.json, without the totals (they follow from the results).

    Raises:
        StoreError: no such file, cut short, not a run, or an unknown ``schema_version``.
    """
    path = directory / RUN
    data = _parse_object(_read(path), str(path))
    _check_version(data, str(path))
    known = {f.name for f in fields(RunInfo)}
    try:
        run = _RUN.validate_python({key: value for key, value in data.items() if key in known})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{path}: not a run: {place}: {first['msg']}") from error
    if run.require not in {level.value for level in LEVELS}:
        raise StoreError(f"{path}: not a run: require: {run.require!r} is no level of evidence")
    return run


_RUN: TypeAdapter[RunInfo] = TypeAdapter(RunInfo)


def read_results(directory: Path) -> list[CellResult]:
    """The results of a stored run, in plan order.

    ``directory`` may also name a results.jsonl itself; without a run.json beside it the totals can't be checked,
    and aren't.

    Raises:
        StoreError: no such file, a line cut short or not a result, a doubled id, an unknown ``schema_version``, or
            other totals than run.json recorded. The message has file and line number, or the totals that differ.
    """
    path = directory if directory.is_file() else directory / RESULTS
    results = list(_parse_results(_read(path), path))
    run_path = path.parent / RUN
    if path.name == RESULTS and run_path.exists():
        recorded = _parse_object(_read(run_path), str(run_path)).get("totals", {})
        count = recorded.get("results")
        if count != len(results):
            raise StoreError(f"{path}: holds {len(results)} results, but {run_path} recorded {count}: cut short?")
        differing = "; ".join(_differences(recorded, to_jsonable(totals(results))))
        if differing:
            raise StoreError(f"{path}: is not what {run_path} recorded: {differing}: edited?")
    return results


def _differences(recorded: Mapping[str, Any], counted: Mapping[str, Any]) -> Iterator[str]:
    """Totals that disagree; one that an earlier harness did not record yet is not missed."""
    for name, now in counted.items():
        was = recorded.get(name, now)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            keys = [key for key in {**now, **was} if was.get(key, 0) != now.get(key, 0)]
            yield from (f"{name}.{key} {now.get(key, 0)} against {was.get(key, 0)}" for key in keys)
        elif was != now:
            yield f"{name} {now} against {was}"


def _parse_results(text: str, path: Path) -> Iterator[CellResult]:
    lines = text.split("\n")
    if lines.pop():
        raise StoreError(f"{path}:{len(lines) + 1}: cut short: the last line has no end")
    first_line: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        place = f"{path}:{number}"
        data = _parse_object(line, place)
        _check_version(data, place)
        try:
            result = result_from_dict(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StoreError(f"{place}: not a cell result: {type(error).__name__}: {error}") from error
        if result.id in first_line:
            raise StoreError(f"{place}: {result.id} stands twice (first on line {first_line[result.id]})")
        first_line[result.id] = number
        yield result


def _read(path: Path) -> str:
    try:
        # newline="" keeps "\r" apart from "\n": a line of results.jsonl ends with "\n" and with nothing else.
        with open(path, encoding="utf-8", newline="") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreError(f"{path}: can't be read: {reason}") from error


def _parse_object(text: str, place: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise StoreError(f"{place}: cut short or not JSON: {error}") from error
    if not isinstance(data, dict):
        raise StoreError(f"{place}: not a JSON object")
    return data


def _check_version(data: Mapping[str, Any], place: str) -> None:
    version = data.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise StoreError(f"{place}: schema_version {version!r} is not known here (this harness reads {SCHEMA_VERSION})")
