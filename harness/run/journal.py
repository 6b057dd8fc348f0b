"""What processes write down while they run cells: one file a process, one line a fact, synced before anything goes on.

Every process appends to ``journal/<round>-<worker>-<pid>.jsonl`` of its run. Whatever is killed, and however hard, each
finished line stays; the line being written may be cut, which the reader reports and never takes for a result.

========  =====================================================================================
type      what it says, beyond worker, pid, round and time
========  =====================================================================================
lease     ``gpu``: the only GPU that this process can see; ``alone``: nobody else has leased it;
          ``in_use_mib``: what was in use there before, where that was asked
waiting   ``message``: the process waits for a GPU
host      ``host``: versions and hardware, once a process, before its first cell; ``run``: whose process it is
start     ``id``, ``attempt``: this process is now running this cell
fault     ``id``, ``attempt``, ``stage``: how far the seeded fault of this cell has come (harness.faults.stages)
end       ``result``, ``attempt``: the cell's result (harness.types.CellResult); ``rss_mib``: the
          most memory that the process held so far; ``gpu_mib``: the same of torch's allocator on its GPU
selected  ``ids``: what pytest kept after -k, --deselect, --lf...
dropped   ``ids``: what vanished from pytest's collection although no option of pytest's asked for it
exit      ``status``: how the worker process ``of`` ended, as its parent saw it (negative: signal)
usage     ``message``: the user's input is at fault (a case file that can't be imported)
paused    a debugger was entered: nobody may judge this process by the clock
stopped   the user interrupted pytest (Ctrl-C, or leaving the debugger)
========  =====================================================================================
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness.serialize import result_from_dict, to_jsonable
from harness.types import CellResult

HEADER = ("type", "worker", "pid", "round", "time")


class Process(NamedTuple):
    """A process of a run. Its files are named ``<round>-<worker>-<pid>``: a pid may come again in a later round."""

    round: int
    worker: str
    pid: int

    @property
    def stem(self) -> str:
        return f"{self.round}-{self.worker}-{self.pid}"

    @classmethod
    def of_file(cls, path: Path) -> Process:
        """From the name of one of its files; zeros for a file that is none of ours."""
        round_number, _, rest = path.stem.partition("-")
        worker, _, pid = rest.rpartition("-")
        return cls(int(round_number) if round_number.isdigit() else 0, worker, int(pid) if pid.isdigit() else 0)


@dataclass(frozen=True)
class Record:
    """One line. ``data`` is everything beyond the header; ``source`` is ``file:line``."""

    type: str
    worker: str
    pid: int
    round: int
    time: float
    data: Mapping[str, Any]
    source: str

    @property
    def process(self) -> Process:
        return Process(self.round, self.worker, self.pid)

    @property
    def attempt(self) -> int:
        return int(self.data.get("attempt", 1))

    @property
    def cell_id(self) -> str:
        """The cell of a ``start`` or ``end`` line."""
        return self.result.id if self.type == "end" else str(self.data["id"])

    @property
    def result(self) -> CellResult:
        """What an ``end`` line holds."""
        result: CellResult = self.data["result"]
        return result


@dataclass(frozen=True)
class BrokenLine:
    """A line that is not a record. ``cut`` is True for a last line without its end: the process died while writing."""

    process: Process
    source: str
    cut: bool

    def __str__(self) -> str:
        return f"{self.source}: the line is {'cut short' if self.cut else 'not a record'}"


@dataclass(frozen=True)
class Journal:
    """All lines of a run, ordered by time and within a process by position."""

    records: tuple[Record, ...] = ()
    broken: tuple[BrokenLine, ...] = ()

    def of_type(self, *types: str) -> Iterator[Record]:
        return (record for record in self.records if record.type in types)


class JournalWriter:
    """Appends to this process's own file; each line is on the disk when :meth:`write` returns."""

    def __init__(self, directory: Path, worker: str, round_number: int) -> None:
        """Raises OSError when the file can't be made."""
        self.worker = worker
        self.round = round_number
        self.path = directory / f"{Process(round_number, worker, os.getpid()).stem}.jsonl"
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, record_type: str, **data: Any) -> None:
        """Raises OSError when the line can't be stored (disk full)."""
        header = dict(zip(HEADER, (record_type, self.worker, os.getpid(), self.round, time.time()), strict=True))
        line = json.dumps(to_jsonable({**header, **data}), ensure_ascii=True, allow_nan=False) + "\n"
        remaining = memoryview(line.encode("ascii"))
        while remaining:
            remaining = remaining[os.write(self._fd, remaining) :]
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


@dataclass
class JournalTail:
    """Reads what was appended since the last look; used while the run goes on."""

    directory: Path
    _offsets: dict[Path, int] = field(default_factory=dict)
    _lines: dict[Path, int] = field(default_factory=dict)

    def poll(self) -> list[Record]:
        """New complete lines of all files. Broken lines are left to :func:`read_journal`, which sees the whole."""
        found: list[Record] = []
        for path in _files(self.directory):
            offset = self._offsets.get(path, 0)
            if path.stat().st_size == offset:
                continue
            with open(path, "rb") as stream:
                stream.seek(offset)
                complete, newline, _ = stream.read().rpartition(b"\n")
            self._offsets[path] = offset + len(complete) + len(newline)
            lines = complete.split(b"\n") if newline else []
            first = self._lines.get(path, 0) + 1
            self._lines[path] = first - 1 + len(lines)
            parsed = (_parse(path, number, line) for number, line in enumerate(lines, first))
            found += [record for record in parsed if isinstance(record, Record)]
        return sorted(found, key=lambda record: record.time)


def read_journal(directory: Path) -> Journal:
    """Every line of every process of a run.

    Raises:
        OSError: the directory can't be read.
    """
    records: list[Record] = []
    broken: list[BrokenLine] = []
    for path in _files(directory):
        *lines, rest = path.read_bytes().split(b"\n")
        for item in _parsed(path, lines):
            if isinstance(item, Record):
                records.append(item)
            else:
                broken.append(item)
        if rest:
            broken.append(BrokenLine(Process.of_file(path), f"{path.name}:{len(lines) + 1}", cut=True))
    return Journal(tuple(_merged(records)), tuple(broken))


def dropped_ids(journal: Journal) -> frozenset[str]:
    """Cells that something other than an option of pytest's kept from running."""
    return frozenset(str(cell_id) for record in journal.of_type("dropped") for cell_id in record.data.get("ids", ()))


def _merged(records: Iterable[Record]) -> list[Record]:
    """Records by time, but never out of their own file's order: a clock set back must not swap start and end."""
    latest: dict[Process, float] = {}
    keyed: list[tuple[float, Record]] = []
    for record in records:
        moment = max(record.time, latest.get(record.process, record.time))
        latest[record.process] = moment
        keyed.append((moment, record))
    return [record for _, record in sorted(keyed, key=lambda pair: pair[0])]


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jsonl"))


def _parsed(path: Path, lines: Iterable[bytes]) -> Iterator[Record | BrokenLine]:
    return (_parse(path, number, line) for number, line in enumerate(lines, 1))


def _parse(path: Path, number: int, line: bytes) -> Record | BrokenLine:
    source = f"{path.name}:{number}"
    try:
        data = json.loads(line)
        record_type, worker, pid, round_number, moment = (data.pop(name) for name in HEADER)
        if record_type == "start":
            data["id"] = str(data["id"])
        if record_type == "end":
            data["result"] = result_from_dict(data["result"])
        return Record(str(record_type), str(worker), int(pid), int(round_number), float(moment), data, source)
    except (ValueError, KeyError, TypeError, AttributeError):
        return BrokenLine(Process.of_file(path), source, cut=False)
