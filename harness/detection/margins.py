"""How sure each red is, and how sure each green: ``python -m harness.detection.margins``.

Every fault's cell and its clean twin, over seeds and kinds of data: value / bound of the check that must see the fault,
and the largest value / bound of the twin (docs/detection.md says how to read it). Exit status: 0 every fault at least
twice its bound, every twin within half of each; 1 there is work to do; others as of every command (harness.exit_codes).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from harness import exit_codes
from harness.detection import command, readers
from harness.detection.command import Task, by_machine
from harness.detection.margins_measure import Distance, Measure, lost, measure, measures
from harness.detection.margins_table import measured, sections, work, wrong
from harness.judge.calibrate_records import made
from harness.types import DATA_KINDS

MODULE = "harness.detection.margins"
KIND = "margins"
SEEDS = (0, 1, 2)


def record(values: Mapping[str, Any]) -> Distance:
    """A record from its line."""
    ratio = values["ratio"]
    whole = {**values, "ratio": None if ratio is None else float(ratio), "findings": tuple(values["findings"])}
    one: Distance = made(Distance, whole)
    return one


def _key(one: Measure | Distance) -> str:
    return one.cell.id if isinstance(one, Measure) else one.cell


TASK: Task[Measure, Distance] = Task(KIND, measure, lost, record, _key, wrong)


def seeds_of(given: Sequence[str], fixed: tuple[int, ...], fresh: int) -> tuple[tuple[int, ...], list[str]]:
    """The seeds, and the arguments that ask for the same ones again: fresh ones are drawn once and named after that."""
    if not fresh:
        return fixed, list(given)
    drawn = tuple(random.SystemRandom().randint(0, readers.LARGEST_SEED) for _ in range(fresh))
    named = ",".join(map(str, drawn))
    print(f"fresh seeds: --seeds {named}", flush=True)
    return drawn, ["--seeds", named, *command.without(given, ("--fresh", "--seeds"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = command.parser(MODULE, __doc__)
    add = parser.add_argument
    add("--seeds", type=readers.seeds, default=SEEDS, metavar="N,...", help="seeds of the cells (0,1,2)")
    add(
        "--fresh",
        type=readers.positive,
        default=0,
        metavar="N",
        help="N seeds that nobody has seen, drawn now and printed, instead",
    )
    add("--data", action="append", choices=DATA_KINDS, help="repeatable; all by default")
    options = parser.parse_args(given)
    seeds, shown = seeds_of(given, options.seeds, options.fresh)
    kinds = tuple(options.data or DATA_KINDS)
    found, ended = command.journals(parser, TASK, options, MODULE, shown, lambda names: measures(names, seeds, kinds))
    counted = f"{len(measured(found))} cells" if any(not one.unavailable for one in measured(found)) else ""
    left = [line for own in by_machine(found).values() for line in work(own, part=bool(options.faults))]
    return command.concluded(parser, options, KIND, found, sections, counted=counted, left=left, ended=ended)


if __name__ == "__main__":
    sys.exit(exit_codes.guarded(main))
