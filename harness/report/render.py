"""Writes every report of a run, and writes them again from what was stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from harness.audit import audit
from harness.report.html import html_chunks
from harness.report.junit import junit_chunks
from harness.report.markdown import comment_markdown, summary_markdown
from harness.report.run_info import RunInfo, audited
from harness.report.store import read_results, read_run, write_results, write_run, write_text_atomically
from harness.report.view import View
from harness.types import CellResult

Renderer = Callable[[View], Iterable[str]]

# File name -> how it is made. A format is one module and one line here.
FORMATS: Mapping[str, Renderer] = {
    "junit.xml": junit_chunks,
    "report.html": html_chunks,
    "summary.md": lambda view: (summary_markdown(view),),
    "comment.md": lambda view: (comment_markdown(view),),
}


def write_reports(directory: Path, run: RunInfo, results: Sequence[CellResult]) -> None:
    """Write all reports into ``directory``, made if missing. ``results`` are in plan order.

    Each file is written whole or not at all; results.jsonl and run.json come first, so that the others can always be
    made again.

    Raises:
        StoreError: an id stands twice in ``results``; nothing is written.
        OSError: the directory can't be made or written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_results(directory, results)
    write_run(directory, run, results)
    _write_formats(directory, View(run, results))


def rerender(directory: Path) -> tuple[RunInfo, list[CellResult]]:
    """Make junit.xml, report.html and the Markdown files again from run.json and results.jsonl, and return those.

    Where the run's plan and journal still lie beside them the run is audited again, so that an edit shows.

    Raises:
        StoreError: the stored run is missing, cut short or of another schema version; nothing is written.
        OSError: the directory can't be written.
    """
    run, results = read_run(directory), read_results(directory)
    if (directory / "process" / "plan.json").exists():
        run = audited(run, audit(directory))
    _write_formats(directory, View(run, results))
    return run, results


def _write_formats(directory: Path, view: View) -> None:
    for name, render in FORMATS.items():
        write_text_atomically(directory / name, render(view))
