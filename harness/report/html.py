"""report.html: one file without external resources, from ``templates/report.html.j2``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from harness.report.baseline import baseline_title
from harness.report.commands import repro_words
from harness.report.evidence import evidence_rows, never_native, nothing_executed
from harness.report.groups import headline
from harness.report.marks import LEGEND, NOT_PLANNED, Mark, cell_seconds, duration, mark_of
from harness.report.run_info import RunInfo
from harness.report.table import Table, value_of
from harness.report.textfit import JOINT, printable, visible
from harness.report.view import View
from harness.types import CellResult, Verdict

MAX_MARKS = 64  # in one position of a table; beyond, counts
MAX_VALUES = 60  # a filter with more choices helps nobody; the text field does
MAX_TITLED = 5000  # marks with a tooltip: each costs its id again


@dataclass(frozen=True)
class Filter:
    """One drop-down over the cells: a name and its values in plan order."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One cell of the list; ``positions`` are those of its values in the filters, for the script."""

    positions: str
    mark: Mark
    result: CellResult
    seconds: str
    why: str


def html_chunks(view: View) -> Iterator[str]:
    """The report as pieces of text."""
    run, results = view.run, view.results
    filters = _filters(results)
    yield from _template().generate(
        view=view,
        run=run,
        count=len(results),
        took=duration(run.seconds),
        environment=[*run.versions.items(), *run.host.items(), *run.env.items()],
        evidence=evidence_rows(results),
        nothing_executed=nothing_executed(results),
        never_native=never_native(results),
        legend=LEGEND,
        xfails=[result for result in results if result.verdict is Verdict.XFAIL],
        skips=[result for result in results if result.verdict is Verdict.SKIP],
        retried=[result for result in results if len(result.attempts) > 1],
        filters=filters,
        rows=_rows(results, filters),
        titled=len(results) <= MAX_TITLED,
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "one_line": printable,
        "many_lines": _many_lines,
        "breakable": _breakable,
        "jointed": _jointed,
        "headline": headline,
    }
    environment.globals.update(repro=_repro, position=_position, baseline_title=baseline_title)
    return environment.get_template("report.html.j2")


def _many_lines(text: str) -> str:
    return "\n".join(visible(line.expandtabs()) for line in text.splitlines())


def _breakable(text: str) -> Markup:
    """One line that may be broken behind its commas, as ids are long."""
    return Markup(",<wbr>").join(printable(text).split(","))


def _jointed(text: str) -> Markup:
    """A name that may be broken at its joints, as recipes are long and there are many columns."""
    return Markup("<wbr>").join(JOINT.split(printable(text)))


def _repro(run: RunInfo, result: CellResult) -> str:
    return shlex.join(repro_words(run, result))


def _position(table: Table, row: tuple[str, ...], column: str) -> list[tuple[str, Mark, CellResult | None]]:
    """(text, mark, result) for each mark in one position of a table; results are None for counts and gaps."""
    if len(table.slots) > MAX_MARKS:
        return [(f"{text} ", mark, None) for text, mark in table.pieces(row, column)]
    marks = [(result, mark_of(result) if result else NOT_PLANNED) for result in table.results(row, column)]
    return [(mark.letter, mark, result) for result, mark in marks]


def _filters(results: Sequence[CellResult]) -> list[Filter]:
    """Verdict, evidence and every axis that varies."""
    axes = dict.fromkeys(axis for result in results for axis in result.axes)
    filters = [
        Filter("verdict", tuple(dict.fromkeys(result.verdict.value for result in results))),
        Filter("evidence", tuple(dict.fromkeys(result.evidence.value for result in results))),
        *(Filter(axis, tuple(dict.fromkeys(value_of(result, axis) for result in results))) for axis in axes),
    ]
    return [f for f in filters if f.name in ("verdict", "evidence") or 1 < len(f.values) <= MAX_VALUES]


def _rows(results: Sequence[CellResult], filters: Sequence[Filter]) -> Iterator[Row]:
    """One row a cell, in plan order."""
    ranks = [{value: rank for rank, value in enumerate(f.values)} for f in filters]
    for result in results:
        own = {"verdict": result.verdict.value, "evidence": result.evidence.value}
        values = [own[f.name] if f.name in own else value_of(result, f.name) for f in filters]
        yield Row(
            positions=" ".join(str(rank[value]) for rank, value in zip(ranks, values, strict=True)),
            mark=mark_of(result),
            result=result,
            seconds=f"{cell_seconds(result):.2f}",
            why=headline(result) if result.verdict.is_red else result.reason,
        )
