"""The kill matrix: every fault against every check, each alone: ``python -m harness.detection.kill``.

Each fault's cell is observed once and judged by every check alone, by all but the named one, by all, and by none
(docs/detection.md says how to read it). Exit status: 0 every named check alone is red and every check kills something
or is justified; 1 there is work to do; others as of every command (harness.exit_codes).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from harness import exit_codes
from harness.detection import command, readers
from harness.detection.command import Task, by_machine
from harness.detection.kill_measure import Job, Killed, lost, measure
from harness.detection.kill_table import rows_of, sections, work, wrong
from harness.judge.calibrate_records import made

MODULE = "harness.detection.kill"
KIND = "kill matrix"


def record(values: Mapping[str, Any]) -> Killed:
    """A record from its line."""
    lists = {name: tuple(values[name]) for name in ("alone", "removed", "together")}
    one: Killed = made(Killed, {**values, **lists})
    return one


def _key(one: Job | Killed) -> tuple[str, int]:
    return one.fault, one.seed


TASK: Task[Job, Killed] = Task(KIND, measure, lost, record, _key, wrong)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = command.parser(MODULE, __doc__)
    parser.add_argument("--seeds", type=readers.seeds, default=(0,), metavar="N,...", help="seeds of the cells (0)")
    options = parser.parse_args(given)

    def jobs(names: Sequence[str]) -> list[Job]:
        return [Job(name, seed) for name in names for seed in options.seeds]

    found, ended = command.journals(parser, TASK, options, MODULE, given, jobs)
    counted = f"{len(rows_of(found))} faults" if any(row.measured for row in rows_of(found)) else ""
    left = [line for own in by_machine(found).values() for line in work(own, part=bool(options.faults))]
    return command.concluded(parser, options, KIND, found, sections, counted=counted, left=left, ended=ended)


if __name__ == "__main__":
    sys.exit(exit_codes.guarded(main))
