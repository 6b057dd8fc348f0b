"""A run as its files hold it: plain JSON, read without the code that wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]
# (name of the finding, what is wrong, the cell's id or nothing)
Said = tuple[str, str, str]


# How faulthandler begins what it writes, and the status of a process that could not write its journal (EX_IOERR).
LAST_WORDS = ("Fatal Python error", "Timeout (")
DISK_FULL = 74


class Damaged(Exception):
    """A file without which nothing can be audited is missing or cut short."""


@dataclass(frozen=True)
class Try:
    """One start of a cell, or an end that had none. ``end`` is the result that was recorded, None without one.

    ``began``: seconds since the epoch, of the start where there is one. ``died``: what its process left behind that
    says it ended by itself in the middle of the cell, which no second try excuses.
    """

    cell: str
    attempt: int
    began: float
    started: bool
    end: Json | None = None
    died: str = ""


@dataclass(frozen=True)
class Recorded:
    """Everything on the disk. ``said``: what is wrong with the files themselves.

    ``cells`` are those of the plan by id; ``tries`` those of the journal by id, in the order of attempts; ``results``
    the lines of results.jsonl in their order; ``host`` what the first process said of the machine.
    """

    directory: Path
    plan: Json
    cells: Mapping[str, Json]
    tries: Mapping[str, list[Try]]
    results: tuple[Json, ...]
    run: Json
    host: Json = field(default_factory=dict)
    said: tuple[Said, ...] = ()


def read(directory: Path) -> Recorded:
    """Read a run.

    Raises:
        Damaged: its plan, run.json or journal can't be read at all.
    """
    process = directory / "process"
    plan = _object(process / "plan.json")
    cells = {str(cell["id"]): cell for cell in plan.get("cells", ())}
    said: list[Said] = []
    if len(cells) != len(plan.get("cells", ())):
        said.append(("audit.twice", "an id stands twice in the plan", ""))
    tries: dict[str, list[Try]] = {}
    host: Json = {}
    journals = _journal(process / "journal")
    statuses = _statuses(journals)
    for path in journals:
        own, about, foreign = _process(path, str(plan.get("run_id", "")))
        said += [("audit.journal", f"{path.name} is the journal of another run: {foreign}", "")] if foreign else []
        host = host or about
        died = _died(process, path.stem, statuses)
        for one in own if not foreign else ():
            tries.setdefault(one.cell, []).append(one if one.end else replace(one, died=died))
    for listed in tries.values():
        listed.sort(key=lambda one: (one.attempt, one.began))
    results, broken = _lines(directory / "results.jsonl")
    run = _object(directory / "run.json")
    return Recorded(directory, plan, cells, tries, results, run, host, (*said, *broken))


def _object(path: Path) -> Json:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Damaged(f"{path.name} can't be read: {error}") from error
    if not isinstance(data, dict):
        raise Damaged(f"{path.name} is not a JSON object")
    return data


def _lines(path: Path) -> tuple[tuple[Json, ...], list[Said]]:
    """The results, and what is wrong with their file: every line must be whole."""
    try:
        *whole, rest = path.read_bytes().split(b"\n")
    except OSError as error:
        return (), [("audit.files", f"{path.name} can't be read: {error}", "")]
    said: list[Said] = [("audit.files", f"{path.name}: the last line is cut short", "")] if rest else []
    found: list[Json] = []
    for number, line in enumerate(whole, start=1):
        data = _parsed(line)
        if data is None or "id" not in data or "verdict" not in data:
            said.append(("audit.files", f"{path.name}:{number}: not a result", ""))
        else:
            found.append(data)
    return tuple(found), said


def _parsed(line: bytes) -> Json | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _journal(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise Damaged("process/journal is missing")
    return sorted(directory.glob("*.jsonl"))


def _statuses(journals: Iterable[Path]) -> Mapping[str, int]:
    """Exit statuses of workers as their parent saw them, by "<round>-<worker>"."""
    exits = [record for path in journals for record in _records(path) if record.get("type") == "exit"]
    return {
        f"{record.get('round')}-{record.get('of')}": s for record in exits if isinstance(s := record["status"], int)
    }


def _died(process: Path, stem: str, statuses: Mapping[str, int]) -> str:
    """A stack that was written on the way out, or an exit status other than that of a full disk; empty without any."""
    try:
        stack = (process / "stacks" / f"{stem}.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        stack = ""
    written = next((line for line in stack.splitlines() if line.startswith(LAST_WORDS)), "")
    status = statuses.get(stem.rpartition("-")[0], DISK_FULL)
    return written or ("" if status == DISK_FULL else f"exit status {status}")


def _process(path: Path, run_id: str) -> tuple[list[Try], Json, str]:
    """One process's tries in its own order, what it said of the machine, and the run it names where that is another."""
    tries: list[Try] = []
    host: Json = {}
    foreign = ""
    opened: Json | None = None
    for record in _records(path):
        kind = record.get("type")
        if kind == "host":
            host = record.get("host", {})
            foreign = foreign or ("" if record.get("run", run_id) == run_id else str(record["run"]))
        if kind not in ("start", "end"):
            continue
        cell = str(record["id"] if kind == "start" else record["result"]["id"])
        is_end = kind == "end" and opened is not None and _names(opened, cell, record)
        if opened is not None and not is_end:
            tries.append(_without_end(opened))
        if kind == "end":
            began = opened["time"] if opened is not None and is_end else record["time"]
            tries.append(Try(cell, _attempt(record), began, is_end, record["result"]))
        opened = record if kind == "start" else None
    if opened is not None:
        tries.append(_without_end(opened))
    return tries, host, foreign


def _names(start: Json, cell: str, end: Json) -> bool:
    return str(start["id"]) == cell and _attempt(start) == _attempt(end)


def _records(path: Path) -> Iterator[Json]:
    """Whole lines alone: one that is cut short can't be the end of anything."""
    *whole, _ = path.read_bytes().split(b"\n")
    return (record for record in map(_parsed, whole) if record is not None and _is_record(record))


def _is_record(record: Json) -> bool:
    kind = record.get("type")
    if kind == "end":
        return isinstance(record.get("result"), dict) and "id" in record["result"] and "time" in record
    if kind == "exit":
        return "status" in record
    return kind != "start" or ("id" in record and "time" in record)


def _attempt(record: Json) -> int:
    return int(record.get("attempt", 1))


def _without_end(start: Json) -> Try:
    return Try(str(start["id"]), _attempt(start), start["time"], True)
