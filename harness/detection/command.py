"""What the commands that measure faults have in common: options, jobs that are done and written down, the page."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from harness import exit_codes
from harness.detection import journal, readers
from harness.detection.journal import Header, Journal
from harness.detection.pool import TIMEOUT, isolated
from harness.faults import FAULTS
from harness.faults.fault import Fault, lacking
from harness.judge.calibrate_records import NotARecord
from harness.judge.calibrate_table import replace_section
from harness.judge.verdict import CHECK_NAMES
from harness.registry import load

GOOD, WORK, INTERRUPTED = exit_codes.GOOD, exit_codes.RED, exit_codes.INTERRUPTED
USAGE, NOTHING = exit_codes.USAGE, exit_codes.NOTHING

WHOLE_PAGE = "--write needs every registered fault: leave --faults out, or measure again"
EPILOG = "exit status: 0 nothing to do; 1 work to do; 2 interrupted; 3 internal error; 4 usage; 5 nothing was measured"
# Options that say where things go, not what is measured: left out of the command that a page shows.
_PRIVATE = ("--json", "--from-json", "--write", "-j", "--timeout")


class Record(Protocol):
    """One job's outcome. ``error``: why there is none, so that a run that goes on tries again."""

    @property
    def fault(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def spoiled(self) -> bool: ...
    @property
    def seconds(self) -> float: ...


J = TypeVar("J")
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Task(Generic[J, R]):
    """A kind of measurement. ``key`` tells which job a record is of; ``wrong`` is one line on a record, or ""."""

    kind: str
    measure: Callable[[J], R]
    lost: Callable[[J, str], R]
    record: Callable[[Mapping[str, Any]], R]
    key: Callable[[J | R], object]
    wrong: Callable[[R], str]


def parser(module: str, doc: str | None) -> readers.Parser:
    """A parser with the options that every such command has."""
    made = readers.Parser(module, str(doc).partition("\n")[0], epilog=EPILOG)
    add = made.add_argument
    add("--faults", type=readers.faults, metavar="NAME,...", help="these alone; every registered one by default")
    add("--write", type=readers.there, metavar="PAGE", help="write this machine's section of the page, nothing else")
    add("--json", type=readers.file, metavar="FILE", help="keep what is measured; a run with such a file goes on")
    add("--from-json", action="append", type=readers.there, metavar="FILE", help="run nothing, read these; repeatable")
    add("-j", dest="workers", type=readers.positive, default=1, metavar="N", help="processes (1)")
    add(
        "--timeout",
        type=readers.seconds,
        default=TIMEOUT,
        metavar="SECONDS",
        help=f"for one cell ({TIMEOUT:g}); the process of one that takes longer is ended, and the rest go on",
    )
    return made


def without(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Arguments less these options and their values."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument.partition("=")[0] not in options:
            kept.append(argument)
        skip = not skip and argument in options
    return kept


def spoken(module: str, arguments: Sequence[str]) -> str:
    """The command as anyone may give it again: without the places of this machine's files."""
    return shlex.join(["python", "-m", module, *without(arguments, _PRIVATE)])


def skip_reason(fault: Fault) -> str:
    """Why a fault's cell can't be observed and judged in a process of this machine; empty where it can."""
    if fault.caught_by not in CHECK_NAMES:
        return f"`{fault.caught_by}` is the run's own word: there is nothing that a check of the judge could look at"
    return lacking(fault.needs, has_gpu=torch.cuda.is_available())


def sorted_out(names: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Faults that can be measured here, and the others with the reason."""
    reasons = {name: skip_reason(load(FAULTS[name])) for name in names}
    return [name for name, why in reasons.items() if not why], [(name, why) for name, why in reasons.items() if why]


def run(
    task: Task[J, R], jobs: Sequence[J], first: Header, path: Path | None, workers: int, timeout: float
) -> tuple[Journal[R], int]:
    """Do what ``path`` doesn't hold already; also the exit status that the end alone asks for.

    Raises:
        NotARecord, OSError: ``path`` can't be gone on with (``journal.kept``).
    """
    ended = GOOD
    with journal.kept(path, first, task.record) as (before, keep):
        keys = {task.key(job) for job in jobs}
        records = [one for one in before if not one.error and task.key(one) in keys]
        known = {task.key(one) for one in records}
        left = [job for job in jobs if task.key(job) not in known]
        try:
            for one in _watched(task, left, workers, timeout):
                keep(one)
                records.append(one)
        except KeyboardInterrupt:
            ended = INTERRUPTED
            print(f"interrupted after {len(records)} of {len(jobs)}" + (f", kept in {path}" if path else ""))
    return Journal(first, tuple(records)), ended


def _watched(task: Task[J, R], jobs: Sequence[J], workers: int, timeout: float) -> Iterable[R]:
    """Outcomes with a progress line on stderr, and on stdout what is wrong with one as it comes."""
    started = time.monotonic()
    live = sys.stderr.isatty()
    outcomes = isolated(task.measure, jobs, workers, task.lost, timeout=timeout)
    for done, one in enumerate(outcomes, 1):
        wrong = task.wrong(one)
        if wrong:
            print(f"{one.fault}: {wrong}", flush=True)
        line = f"[{done}/{len(jobs)}] {time.monotonic() - started:.0f} s, {one.fault} {one.seconds:.1f} s"
        if live or done % 20 == 0 or done == len(jobs):
            print(f"{line:79}", end="\r" if live and done < len(jobs) else "\n", file=sys.stderr, flush=True)
        yield one


def journals(
    made: argparse.ArgumentParser,
    task: Task[J, R],
    options: argparse.Namespace,
    module: str,
    given: Sequence[str],
    jobs: Callable[[Sequence[str]], Sequence[J]],
) -> tuple[list[Journal[R]], int]:
    """What was measured, now or in the files that are to be read; ``jobs`` of the faults that can run here."""
    if options.write and options.faults and not options.from_json:
        made.error(WHOLE_PAGE)
    try:
        if options.from_json:
            found = [journal.read(path, task.kind, task.record) for path in options.from_json]
            now = journal.digest(journal.ROOT)
            for path, one in zip(options.from_json, found, strict=True):
                if one.header.sources != now:
                    print(f"{path}: measured with other code than is here now")
            return found, GOOD
        names, skipped = sorted_out(options.faults or FAULTS)
        for name, why in skipped:
            print(f"not measured: {name}: {why}")
        first = journal.header(task.kind, spoken(module, given), skipped)
        done, ended = run(task, jobs(names), first, options.json, options.workers, options.timeout)
        return [done], ended
    except (NotARecord, OSError) as error:
        made.error(str(error))


def by_machine(found: Sequence[Journal[R]]) -> Mapping[str, list[Journal[R]]]:
    """Journals of one machine belong into one section."""
    machines: dict[str, list[Journal[R]]] = {}
    for one in found:
        machines.setdefault(one.header.machine, []).append(one)
    return machines


def not_looked_at(found: Sequence[Journal[R]]) -> list[str]:
    """Registered faults that were neither measured nor skipped with a reason."""
    seen = {one.fault for run in found for one in run.records}
    seen |= {name for run in found for name, _ in run.header.skipped}
    return [name for name in FAULTS if name not in seen]


def environment(found: Sequence[Journal[R]], versions: Sequence[str]) -> str:
    """Date, hardware, versions and commands of one machine's journals, as the page shows them."""
    last = found[-1].header
    named = ", ".join(f"{name} {last.versions[name]}" for name in versions if name in last.versions)
    dates = ", ".join(dict.fromkeys(one.header.date for one in found))
    commands = "\n".join(f"    {line}" for line in dict.fromkeys(one.header.command for one in found))
    return f"{dates}. {last.hardware}. {named}.\n\n{commands}"


def concluded(
    made: argparse.ArgumentParser,
    options: argparse.Namespace,
    kind: str,
    found: Sequence[Journal[R]],
    sections: Callable[[Sequence[Journal[R]]], Mapping[str, str]],
    *,
    counted: str,
    left: Sequence[str],
    ended: int,
) -> int:
    """Say what is left to do, write the page if that was asked for; the exit status.

    ``counted``: what was measured, in words, empty for nothing; ``ended``: the status that the end of the run asks for.
    """
    if not counted:
        print("nothing was measured")
        return ended or NOTHING
    for line in left:
        print(line)
    if options.write and ended == GOOD:
        write_page(made, options.write, kind, found, sections)
    print(f"{counted}, {len(left)} lines of work to do")
    return ended or (WORK if left else GOOD)


def write_page(
    made: argparse.ArgumentParser,
    page: Path,
    kind: str,
    found: Sequence[Journal[R]],
    sections: Callable[[Sequence[Journal[R]]], Mapping[str, str]],
) -> None:
    """Put each machine's section into its place on the page; a usage error where it would not be whole."""
    if any(not_looked_at(own) for own in by_machine(found).values()):
        made.error(WHOLE_PAGE)
    try:
        text = page.read_text(encoding="utf-8")
        for machine, section in sections(found).items():
            text = replace_section(text, machine, section, kind=kind)
        page.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        made.error(f"{page}: {error}")
