"""Is there a false alarm? A clean matrix many times over, with other seeds, other shapes and in other orders.

    python -m harness.detection.alarms --matrix l0.yaml --seeds 25 --shapes 128x256x128,256x128x384 --out reports/alarms

One ordinary run for each shape, its cells times so many seeds, shuffled. A cell that is red, or whose verdict is not
the same for every seed and shape, is an alarm. Seeds are drawn for each call and printed; --first-seed repeats.
Options that aren't listed here go to each run: -n 4, --set backend=eager, -k mxfp8.
"""

from __future__ import annotations

import argparse
import re
import secrets
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.detection import readers
from harness.exit_codes import GOOD, INTERNAL, INTERRUPTED, NOTHING, RED, USAGE, guarded, highest
from harness.report import StoreError, read_results
from harness.types import CellResult

MODULE = "harness.detection.alarms"
RUNNER = Path(__file__).resolve().parents[2] / "runner.py"
AS_A_RUN_ENDS = (GOOD, RED)  # all green, some red: the comparison says which
LEAVES_RESULTS = (GOOD, RED, INTERRUPTED, INTERNAL)
MOST_SEEDS = 10_000  # what one argument of a process can hold
# Options of a run that are this command's own to give.
_OWN = ("--report-dir", "--plan", "--shuffle")
EPILOG = """\
exit status: 0 no alarm; 1 an alarm; 2 interrupted; 3 a run failed, or left no results; 4 usage, or a matrix that a run
             refuses; 5 nothing ran. Interrupted, or failed, the comparison of what had run stands there all the same
"""


@dataclass(frozen=True)
class Alarm:
    """A cell, without its seed and shape, that was red or had several verdicts. ``example`` is one of its reds."""

    cell: str
    verdicts: Mapping[str, int]
    example: str


@dataclass(frozen=True)
class Repeats:
    """``cells``: how many were run, by verdict; ``distinct``: without seed and shape; ``alarms``: what was wrong.

    ``problems``: what was wrong with a run itself; ``ended``: the exit code that asks for (harness.exit_codes).
    """

    cells: Mapping[str, int]
    distinct: int
    alarms: Sequence[Alarm]
    problems: Sequence[str] = ()
    ended: int = GOOD

    @property
    def exit_code(self) -> int:
        """0: every cell had one verdict, which is no red, and every run ended as it should."""
        found = [self.ended, RED if self.alarms else GOOD]
        return highest(found) or (GOOD if self.cells else NOTHING)


def without_seed(result: CellResult) -> str:
    """What a cell is called beside its seed and its shape."""
    return re.sub(r",(?:seed|shape)=[^,\]]*", "", result.id)


def compared(results: Iterable[CellResult], problems: Sequence[str] = (), ended: int = GOOD) -> Repeats:
    """Every cell under its name without seed and shape: its verdicts must be one, and no red."""
    found: dict[str, list[CellResult]] = defaultdict(list)
    for result in results:
        found[without_seed(result)].append(result)
    alarms = [_alarm(name, many) for name, many in sorted(found.items()) if _is_alarm(many)]
    cells = Counter(result.verdict.value for many in found.values() for result in many)
    return Repeats(dict(cells), len(found), alarms, tuple(problems), ended)


def _is_alarm(many: Sequence[CellResult]) -> bool:
    return len({result.verdict for result in many}) > 1 or many[0].verdict.is_red


def _alarm(name: str, many: Sequence[CellResult]) -> Alarm:
    verdicts = Counter(result.verdict.value for result in many)
    example = next((result for result in many if result.verdict.is_red), many[0])
    return Alarm(name, dict(verdicts), f"{example.id}: {example.reason or example.verdict.value}")


def run_once(matrix: str, shape: str, seeds: Sequence[int], out: Path, words: Sequence[str]) -> tuple[Path, int]:
    """One run; its report directory and its exit code."""
    directory = out / (shape or "own-shapes")
    command = [sys.executable, str(RUNNER), "--matrix", matrix, "--report-dir", str(directory), *words]
    command += ["--set", f"seed={','.join(map(str, seeds))}", "--shuffle", str(seeds[0])]
    command += ["--set", f"shape={shape}"] if shape else []
    with subprocess.Popen(command) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the run ends by itself at the same Ctrl-C, and keeps what it has
            process.send_signal(signal.SIGINT)
            code = process.wait()
    return directory, code


def repeated(matrix: str, shapes: Sequence[str], seeds: Sequence[int], out: Path, words: Sequence[str]) -> Repeats:
    """Run the matrix once for each shape, with every seed, and compare all of it."""
    results: list[CellResult] = []
    problems: list[str] = []
    ended: list[int] = []
    for shape in shapes:
        before = _report_of(out / (shape or "own-shapes"))
        directory, code = run_once(matrix, shape, seeds, out, words)
        ended += [] if code in AS_A_RUN_ENDS else [code]
        problems += [] if code in AS_A_RUN_ENDS else [f"{directory}: exit code {code}"]
        if code in LEAVES_RESULTS:
            try:
                # What another run left there says nothing of this one.
                results += read_results(directory) if _report_of(directory) != before else ()
            except (OSError, StoreError) as error:
                problems.append(str(error))
                ended.append(INTERNAL)
        if code in (INTERRUPTED, USAGE):  # the next one would be refused for the same reason
            break
    return compared(results, problems, highest(ended))


def _report_of(directory: Path) -> tuple[int, int] | None:
    """What tells one report from the next in the same place."""
    try:
        found = (directory / "run.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def told(repeats: Repeats, times: int) -> str:
    """The outcome as text."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(repeats.cells.items()))
    lines = [f"{_many(repeats.distinct, 'cell')}, {_many(times, 'time')} each: {counts or 'nothing ran'}"]
    for alarm in repeats.alarms:
        lines += [f"ALARM {alarm.cell}: {dict(alarm.verdicts)}", f"  {alarm.example}"]
    lines += [f"PROBLEM {problem}" for problem in repeats.problems]
    lines.append(_verdict(repeats))
    return "\n".join(lines)


def _verdict(repeats: Repeats) -> str:
    alarms = _many(len(repeats.alarms), "alarm") if repeats.alarms else "no alarm"
    if repeats.exit_code in (GOOD, RED):
        return alarms
    why = {INTERRUPTED: "interrupted", NOTHING: "a run had no cells", USAGE: "a run was refused"}
    so_far = f"; {alarms} in what ran" if repeats.cells else ""
    return f"exit code {repeats.exit_code}: {why.get(repeats.exit_code, 'a run failed')}{so_far}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _parser() -> argparse.ArgumentParser:
    parser = readers.Parser(MODULE, str(__doc__), epilog=EPILOG)
    add = parser.add_argument
    add("--matrix", default="l0.yaml", metavar="FILE")
    add("--seeds", type=readers.positive, default=10, metavar="N", help="how many (10), each with every shape")
    add("--first-seed", type=readers.seed, metavar="SEED", help="seeds count up from here; default: drawn")
    add("--shapes", type=readers.shapes, default=("",), metavar="MxKxN,...", help="default: the matrix's own")
    add("--out", type=readers.directory, default=Path("reports/alarms"), metavar="DIR")
    return parser


def _seeds(parser: argparse.ArgumentParser, first: int | None, count: int) -> range:
    if count > MOST_SEEDS:
        parser.error(f"--seeds {count}: {MOST_SEEDS} at most, a run is told them one by one")
    first = secrets.randbelow(readers.LARGEST_SEED - MOST_SEEDS) if first is None else first
    if first + count - 1 > readers.LARGEST_SEED:
        parser.error(f"seeds {first} to {first + count - 1}: {readers.LARGEST_SEED} is the largest")
    return range(first, first + count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status."""
    parser = _parser()
    options, words = parser.parse_known_args(arguments)
    refused = [word for word in words if word.partition("=")[0] in _OWN]
    if refused:
        parser.error(f"{refused[0].partition('=')[0]} can't be given to the runs of this command")
    seeds = _seeds(parser, options.first_seed, options.seeds)
    shapes = options.shapes
    print(f"seeds {seeds[0]} to {seeds[-1]}, shapes {', '.join(shapes).strip() or 'own'}", flush=True)
    try:
        repeats = repeated(options.matrix, shapes, seeds, options.out, words)
    except KeyboardInterrupt:  # a second one, or between two runs
        print("interrupted")
        return INTERRUPTED
    print(told(repeats, len(seeds) * len(shapes)))
    return repeats.exit_code


if __name__ == "__main__":
    sys.exit(guarded(main))
