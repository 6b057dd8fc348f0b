"""Value against bound for good runs: ``python -m harness.judge.calibrate --seeds 20``.

Runs known-good providers over recipes, nestings, kinds of data, shapes and seeds, judges every run, and prints for each
bound of the judge the largest value / bound and where it was met (docs/detection.md). A good value nearer to its bound
than a factor of two is work to do. Exit status: 0 all good; 1 a good run has a finding or is nearer than that; 2
interrupted; 3 a worker died; 4 usage; 5 nothing was measured.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from cases import CASES
from harness import exit_codes
from harness.judge.calibrate_catalogue import BOUNDS, LARGEST_GOOD, names
from harness.judge.calibrate_measure import NOT_COMPILED, Job, observe_eager
from harness.judge.calibrate_plan import Plan
from harness.judge.calibrate_pool import WorkerLost, measure_all
from harness.judge.calibrate_records import Calibration, Header, Measured, NotARecord, read, write_line
from harness.judge.calibrate_table import number, replace_section, rows, section, unnamed, worst_of
from harness.providers import PROVIDERS
from harness.run.host import describe, host_arch, resolve_arch
from harness.types import DATA_KINDS, DTYPES, NESTINGS, RECIPES

__all__ = ["main", "observe_eager"]

GOOD, BAD, INTERRUPTED = exit_codes.GOOD, exit_codes.RED, exit_codes.INTERRUPTED
LOST, USAGE, NOTHING = exit_codes.INTERNAL, exit_codes.USAGE, exit_codes.NOTHING

# Options that say where things go, not what is measured: left out of the command that the page shows.
_PRIVATE = ("--json", "--markdown")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _shape(text: str) -> tuple[int, int, int]:
    numbers = tuple(int(part) for part in text.split(","))
    if len(numbers) != 3 or min(numbers) < 1:
        raise ValueError(text)
    return numbers


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m harness.judge.calibrate", description=str(__doc__).partition("\n")[0])
    add = parser.add_argument
    add("--provider", action="append", choices=list(PROVIDERS), help="repeatable; reference by default")
    add("--case", default="toy_linear", choices=list(CASES))
    add("--recipe", action="append", choices=RECIPES, help="repeatable; all by default")
    add("--nesting", action="append", choices=NESTINGS, help="repeatable; all by default")
    add("--data", action="append", choices=DATA_KINDS, help="repeatable; all by default")
    add("--seeds", type=int, default=3, metavar="N", help="how many seeds (3)")
    add("--first-seed", type=int, default=0, metavar="K", help="seeds K to K+N-1 (0)")
    add("--shape", action="append", type=_shape, metavar="M,K,N", help="repeatable; 128,256,128 by default")
    add("--dtype", action="append", choices=DTYPES, help="repeatable; bfloat16 by default")
    add(
        "--backend",
        action="append",
        choices=(NOT_COMPILED, "aot_eager", "inductor"),
        help="repeatable; none: the eager run alone (default)",
    )
    add("--arch", default="host", help="host (default) or cpu")
    add("--workers", type=int, default=1, metavar="N", help="processes (1)")
    add("--json", type=Path, metavar="FILE", help="write every cell's margins, a line each, as they are measured")
    add("--markdown", type=Path, metavar="FILE", help="write this machine's section of the page, nothing else in it")
    add("--from-json", action="append", type=Path, metavar="FILE", help="run nothing, read these; repeatable")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    options = parser.parse_args(given)
    if options.from_json:
        try:
            calibrations = [read(path) for path in options.from_json]
        except (NotARecord, OSError) as error:
            parser.error(str(error))
        return _finish(calibrations, options.markdown)
    plan = _plan(parser, options)
    calibration, ended = run(plan, command(given), options.workers, options.json)
    if ended != GOOD:
        kept = f"kept in {options.json}" if options.json else "not kept: no --json"
        print(f"the page is left as it was; what was measured is {kept}")
    status = _finish([calibration], options.markdown if ended == GOOD else None)
    return ended or status


def jobs_of(arguments: Sequence[str]) -> Sequence[Job]:
    """The cells that a command line asks for and that can run here."""
    parser = _parser()
    return _plan(parser, parser.parse_args(arguments)).jobs()[0]


def _plan(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Plan:
    if options.seeds < 1 or options.workers < 1:
        parser.error("--seeds and --workers are at least 1")
    arch = resolve_arch(options.arch)
    if arch not in ("cpu", host_arch()):
        parser.error(
            f"--arch {options.arch}: this machine is {host_arch()}, and what doesn't execute can't be measured"
        )
    return Plan(
        case=options.case,
        providers=options.provider or ("reference",),
        recipes=options.recipe or RECIPES,
        nestings=options.nesting or NESTINGS,
        data=options.data or DATA_KINDS,
        seeds=range(options.first_seed, options.first_seed + options.seeds),
        shapes=options.shape or ((128, 256, 128),),
        dtypes=options.dtype or ("bfloat16",),
        backends=options.backend or (NOT_COMPILED,),
        arch=arch,
    )


def command(arguments: Sequence[str]) -> str:
    """The command as anyone may run it again: without the places of this machine's files."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument.partition("=")[0] not in _PRIVATE:
            kept.append(argument)
        skip = not skip and argument in _PRIVATE
    return shlex.join(["python", "-m", "harness.judge.calibrate", *kept])


def run(plan: Plan, text: str, workers: int, json: Path | None) -> tuple[Calibration, int]:
    """Measure a plan; also the exit status that its end alone asks for."""
    jobs, skipped = plan.jobs()
    for one in skipped:
        print(f"not calibrated: {one.provider}, {one.recipe}, {one.what} ({one.cells} cells): {one.reason}")
    host = describe()
    gpus = ", ".join(gpu["name"] for gpu in host["gpus"])
    header = Header(
        machine="CPU" if plan.arch == "cpu" else f"{host['gpus'][0]['name']} ({plan.arch})",
        date=datetime.date.today().isoformat(),
        command=text,
        versions=host["versions"],
        hardware=f"{host['cpu']}, {host['cpu_count']} cores" + ("" if plan.arch == "cpu" else f", {gpus}"),
        planned=len(jobs),
        skipped=tuple(skipped),
    )
    cells: list[Measured] = []
    with ExitStack() as stack:
        stream = stack.enter_context(json.open("w", encoding="utf-8")) if json else None
        if stream:
            write_line(stream, "run", header)
        ended = GOOD
        try:
            for cell in _watched(jobs, workers):
                cells.append(cell)
                if stream:
                    write_line(stream, "cell", cell)
        except KeyboardInterrupt:
            ended = INTERRUPTED
            print(f"interrupted after {len(cells)} of {len(jobs)} cells")
        except WorkerLost as lost:
            ended = LOST
            print(f"a worker died after {len(cells)} of {len(jobs)} cells: {lost}")
    return Calibration(header, tuple(cells)), ended


def _watched(jobs: Sequence[Job], workers: int) -> Iterable[Measured]:
    """The jobs' records, with a progress line on stderr and every finding on stdout as it comes."""
    started = shown = time.monotonic()
    findings, worst = 0, 0.0
    live = sys.stderr.isatty()
    for done, cell in enumerate(measure_all(jobs, workers), 1):
        for finding in cell.findings:
            findings += 1
            print(f"RED {cell.cell}: {finding}")
        met = worst_of([cell])
        worst = max(worst, met.ratio) if met else worst
        if time.monotonic() - shown > (0.2 if live else 15) or done == len(jobs):
            shown = time.monotonic()
            line = f"[{done}/{len(jobs)}] {shown - started:.0f} s, {findings} findings, worst {number(worst)}"
            print(line, end="\r" if live and done < len(jobs) else "\n", file=sys.stderr, flush=True)
        yield cell


def _finish(calibrations: Sequence[Calibration], markdown: Path | None) -> int:
    """Print the table, write the page's sections, and say what is wrong; the exit status."""
    judged = [cell for one in calibrations for cell in one.judged]
    if not judged:
        print("nothing was measured: no cell executed and was judged")
        return NOTHING
    for row in rows(judged, BOUNDS):
        if row.worst is not None:
            print(
                f"{' '.join(row.bound.name):50} {row.provider:19} {row.count:8} {number(row.worst.ratio):>8}  "
                f"{row.worst.cell if row.worst.ratio else ''} {row.worst.where if row.worst.ratio else ''}"
            )
    if markdown:
        _write(markdown, calibrations)
    return _verdict(calibrations, judged)


def _write(markdown: Path, calibrations: Sequence[Calibration]) -> None:
    page = markdown.read_text(encoding="utf-8") if markdown.exists() else ""
    for machine in dict.fromkeys(one.header.machine for one in calibrations):
        own = [one for one in calibrations if one.header.machine == machine]
        page = replace_section(page, machine, section(own))
    markdown.write_text(page, encoding="utf-8")


def _verdict(calibrations: Sequence[Calibration], judged: Sequence[Measured]) -> int:
    """Say what is wrong with what was measured; the exit status."""
    findings = sum(len(cell.findings) for one in calibrations for cell in one.cells)
    strange = unnamed(judged, names())
    worst = worst_of(judged)
    total = sum(len(one.cells) for one in calibrations)
    print(f"{total} cells, {len(judged)} judged, {findings} findings")
    if len(judged) < total:
        print(f"{total - len(judged)} cells gave nothing to judge")
    for name in strange:
        print(f"{' '.join(name)} is not in the catalogue of bounds")
    if worst is None:
        print("nothing was held against a bound")
        return NOTHING
    near = not worst.ratio <= LARGEST_GOOD
    if near:
        print(f"nearer to a bound than a factor of two: {number(worst.ratio)} in {worst.cell}, {worst.where}")
    return BAD if findings or strange or near or len(judged) < total else GOOD


if __name__ == "__main__":
    sys.exit(exit_codes.guarded(main))
