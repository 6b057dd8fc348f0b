"""Is there a false alarm? A clean matrix many times over, with other seeds, other shapes and in other orders.

    python -m harness.detection.alarms --matrix l0.yaml --seeds 25 --shapes 128x256x128,256x128x384 --out reports/alarms

One ordinary run for each shape, its cells times so many seeds, shuffled. A cell that is red, or whose verdict is not
the same for every seed and shape, is an alarm. Seeds are drawn for each call and printed; ``--first-seed`` repeats.
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

from harness.report import StoreError, read_results
from harness.types import CellResult

RUNNER = Path(__file__).resolve().parents[2] / "runner.py"
SEED_LIMIT = 1 << 31
AS_A_RUN_ENDS = (0, 1)  # all green, some red: the comparison says which
INTERRUPTED = 2


@dataclass(frozen=True)
class Alarm:
    """A cell, without its seed and shape, that was red or had several verdicts. ``example`` is one of its reds."""

    cell: str
    verdicts: Mapping[str, int]
    example: str


@dataclass(frozen=True)
class Repeats:
    """``cells``: how many were run, by verdict; ``distinct``: without seed and shape; ``alarms``: what was wrong."""

    cells: Mapping[str, int]
    distinct: int
    alarms: Sequence[Alarm]
    problems: Sequence[str] = ()

    @property
    def exit_code(self) -> int:
        """0: every cell had one verdict, which is no red, and every run ended as it should."""
        return 1 if self.alarms or self.problems or not self.cells else 0


def without_seed(result: CellResult) -> str:
    """What a cell is called beside its seed and its shape."""
    return re.sub(r",(?:seed|shape)=[^,\]]*", "", result.id)


def compared(results: Iterable[CellResult], problems: Sequence[str] = ()) -> Repeats:
    """Every cell under its name without seed and shape: its verdicts must be one, and no red."""
    found: dict[str, list[CellResult]] = defaultdict(list)
    for result in results:
        found[without_seed(result)].append(result)
    alarms = [_alarm(name, many) for name, many in sorted(found.items()) if _is_alarm(many)]
    cells = Counter(result.verdict.value for many in found.values() for result in many)
    return Repeats(dict(cells), len(found), alarms, tuple(problems))


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
    for shape in shapes:
        directory, code = run_once(matrix, shape, seeds, out, words)
        problems += [] if code in AS_A_RUN_ENDS else [f"{directory}: exit code {code}"]
        try:
            results += read_results(directory)
        except (OSError, StoreError) as error:
            problems.append(str(error))
        if code == INTERRUPTED:
            break
    return compared(results, problems)


def told(repeats: Repeats, times: int) -> str:
    """The outcome as text."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(repeats.cells.items()))
    lines = [f"{repeats.distinct} cells, {times} times each: {counts or 'nothing ran'}"]
    for alarm in repeats.alarms:
        lines += [f"ALARM {alarm.cell}: {dict(alarm.verdicts)}", f"  {alarm.example}"]
    lines += [f"PROBLEM {problem}" for problem in repeats.problems]
    lines.append("no alarm" if repeats.exit_code == 0 else f"{len(repeats.alarms)} alarms")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: no alarm; 1: some."""
    parser = argparse.ArgumentParser(prog="python -m harness.detection.alarms", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--matrix", default="l0.yaml", metavar="FILE")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="how many, each with every shape")
    parser.add_argument("--first-seed", type=int, metavar="SEED", help="seeds count up from here; default: drawn")
    parser.add_argument("--shapes", default="", metavar="MxKxN,...", help="default: the matrix's own")
    parser.add_argument("--out", type=Path, default=Path("reports/alarms"), metavar="DIR")
    options, words = parser.parse_known_args(arguments)
    first = options.first_seed if options.first_seed is not None else secrets.randbelow(SEED_LIMIT)
    seeds = [first + index for index in range(max(options.seeds, 1))]
    shapes = options.shapes.split(",") if options.shapes else [""]
    print(f"seeds {seeds[0]} to {seeds[-1]}, shapes {', '.join(shapes) or 'own'}", flush=True)
    repeats = repeated(options.matrix, shapes, seeds, options.out, words)
    print(told(repeats, len(seeds) * len(shapes)))
    return repeats.exit_code


if __name__ == "__main__":
    sys.exit(main())
