"""What was measured so far, a line each: an interrupted run goes on where it stopped, if the code is still the same."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.judge.calibrate_records import NotARecord, made, read_lines, write_line
from harness.run.host import describe

ROOT = Path(__file__).resolve().parents[2]
R = TypeVar("R")


@dataclass(frozen=True)
class Header:
    """A run: what it measures ("kill matrix", "margins"), the machine, when and how it was started, and of which code.

    ``sources``: a digest of every Python file of the harness and of the cases. ``skipped``: fault and reason.
    """

    kind: str
    machine: str
    date: str
    command: str
    hardware: str
    versions: Mapping[str, str]
    sources: str
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Journal(Generic[R]):
    """A run with its records in the order in which they were written."""

    header: Header
    records: tuple[R, ...]


def header(kind: str, command: str, skipped: Sequence[tuple[str, str]]) -> Header:
    """The header of a run that starts now, on this machine."""
    host = describe()
    gpus = ", ".join(gpu["name"] for gpu in host["gpus"])
    return Header(
        kind=kind,
        machine=f"{host['gpus'][0]['name']} ({host['arch']})" if host["gpus"] else "CPU",
        date=datetime.date.today().isoformat(),
        command=command,
        hardware=f"{host['cpu']}, {host['cpu_count']} cores" + (f", {gpus}" if gpus else ""),
        versions=host["versions"],
        sources=digest(ROOT),
        skipped=tuple(skipped),
    )


def digest(root: Path) -> str:
    """Sixteen hexadecimal digits over the Python files of ``harness`` and ``cases``, their paths included."""
    total = hashlib.sha256()
    for package in ("cases", "harness"):
        for path in sorted((root / package).rglob("*.py")):
            total.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def read(path: Path, kind: str, record: Callable[[Mapping[str, Any]], R]) -> Journal[R]:
    """A run from its file; a last line that was cut off is left out.

    Raises:
        NotARecord: the file is no journal of this kind.
        OSError: it can't be read.
    """
    lines = read_lines(path)
    try:
        first = made(Header, lines[0]["run"])
        if first.kind != kind:
            raise NotARecord(f"{path}: {first.kind}, not {kind}")
        first = made(Header, {**lines[0]["run"], "skipped": tuple((name, why) for name, why in first.skipped)})
        return Journal(first, tuple(record(line["record"]) for line in lines[1:]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotARecord(f"{path}: no journal of a {kind}: {error!r}") from error


@contextmanager
def kept(
    path: Path | None, wanted: Header, record: Callable[[Mapping[str, Any]], R]
) -> Iterator[tuple[list[R], Callable[[R], None]]]:
    """Records that ``path`` holds already, and what writes further ones to it; nothing is kept without a path.

    Raises:
        NotARecord: the file is there and not of this kind, machine, or code: what it holds would not be what runs now.
        OSError: it can't be read or written.
    """
    if path is None:
        yield [], lambda new: None
        return
    before: list[R] = []
    if path.exists() and path.stat().st_size:
        found = read(path, wanted.kind, record)
        for name in ("machine", "versions", "sources"):
            if getattr(found.header, name) != getattr(wanted, name):
                raise NotARecord(f"{path}: measured with other {name}; remove it, or name another file")
        before = list(found.records)
    whole = path.with_name(f"{path.name}.new")  # the last line may have been cut off, and nothing may get lost
    with whole.open("w", encoding="utf-8") as stream:
        write_line(stream, "run", wanted)
        for one in before:
            write_line(stream, "record", one)
    whole.replace(path)
    with path.open("a", encoding="utf-8") as stream:
        yield before, lambda new: write_line(stream, "record", new)
