"""The summary at the end of a run. Reads without colour and at 80 columns; the last lines matter most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.report.baseline import baseline_title
from harness.report.commands import next_command, repro_words
from harness.report.evidence import evidence_rows, never_native, nothing_executed
from harness.report.groups import Group, headline
from harness.report.marks import cell_seconds, duration
from harness.report.page import Page
from harness.report.progress import is_ascii
from harness.report.run_info import RunInfo
from harness.report.table_text import put_tables
from harness.report.view import View
from harness.types import NOT_KEPT, CellResult, Evidence, Verdict

MAX_GROUPS = 10
MAX_DETAIL = 12  # lines of a stack
MAX_INDENT = 12
MAX_REASONS = 6
SLOWEST = 10


def print_summary(
    console: Console, run: RunInfo, results: Sequence[CellResult], *, verbosity: int = 0, directory: Path | None = None
) -> None:
    """Print the summary of a run.

    ``verbosity``: -1 leaves the tables out, 1 adds the slowest cells and shows every group. ``directory`` is where the
    reports were written, if they were.
    """
    page = summary_page(View(run, results), console.width, verbosity, directory, ascii_only=is_ascii(console))
    for line in page.lines:
        console.print(line, soft_wrap=True)


def summary_page(
    view: View,
    width: int,
    verbosity: int = 0,
    directory: Path | None = None,
    *,
    ascii_only: bool = False,
) -> Page:
    """The summary as lines of at most ``width`` cells."""
    page = Page(width, ascii_only=ascii_only)
    results = view.results
    _put_head(page, view.run, results)
    if results and verbosity >= 0:
        page.blank()
        put_tables(page, view.tables)
    _put_evidence(page, view.run, results)
    _put_other_ends(page, results)
    _put_groups(page, view.run, view.groups, verbosity)
    if verbosity >= 1:
        _put_slowest(page, results)
    _put_end(page, view, directory)
    return page


def _put_head(page: Page, run: RunInfo, results: Sequence[CellResult]) -> None:
    page.blank()
    workers = f", {run.workers} worker{'s' if run.workers != 1 else ''}" if run.workers else ""
    planned = f" of {run.planned} planned" if run.planned > len(results) else ""
    page.say(
        f"{run.name or run.matrix}: {len(results)} cells{planned} in {duration(run.seconds)}{workers} ({run.matrix})",
        rest="  ",
        style="bold",
    )
    page.flow([f"{name} {version}" for name, version in run.versions.items()], first="  ", rest="  ", gap=", ")
    page.flow([f"{name} {value}" for name, value in run.host.items() if value], first="  ", rest="  ", gap=", ")
    if run.selected != len(results) and run.selected:
        page.say(f"{run.selected} cells were selected, {len(results)} have a result.", first="  ", style="bold red")
    for note in run.notes:
        page.say(note, first="  note: ")


def _put_evidence(page: Page, run: RunInfo, results: Sequence[CellResult]) -> None:
    page.blank()
    page.spans([("Evidence    pass  refused  unjudged   red  other  cells", "bold")])
    for row in evidence_rows(results):
        counts = f"{row.passed:>6}{row.refused:>9}{row.unjudged:>10}{row.reds:>6}{row.other:>7}{row.cells:>7}"
        page.spans([(f"{row.level:<10}{counts}", "")])
    if nothing_executed(results):
        page.say(
            "Nothing was executed: no cell was seen to run FP8 arithmetic on this machine.",
            style="bold red" if run.require != Evidence.TRACED.value else "bold yellow",
        )
    for line in never_native(results):
        page.say(line, rest="  ", style="yellow")


def _put_other_ends(page: Page, results: Sequence[CellResult]) -> None:
    """Skips by reason, expected failures, retries: neither green nor red, and not to be lost."""
    skips = Counter(result.reason or "no reason given" for result in results if result.verdict is Verdict.SKIP)
    xfails = Counter(headline(result) for result in results if result.verdict is Verdict.XFAIL)
    for title, counts in (("Skipped", skips), ("Expected failures", xfails)):
        if not counts:
            continue
        page.blank()
        page.say(f"{title}: {counts.total()}", style="bold")
        for reason, count in counts.most_common(MAX_REASONS):
            page.say(f"{count} x {reason}", first="  ", rest="    ")
        if len(counts) > MAX_REASONS:
            page.say(f"and {len(counts) - MAX_REASONS} more reasons: see report.html", first="  ")
    retried = [result for result in results if len(result.attempts) > 1]
    if retried:
        page.blank()
        page.say(f"Retried: {len(retried)}", style="bold")
        for result in retried[:MAX_REASONS]:
            tries = ", then ".join(
                f"{attempt.verdict.value} on {attempt.gpu}" if attempt.gpu else attempt.verdict.value
                for attempt in result.attempts
            )
            page.say(f"{result.id}: {tries}", first="  ", rest="    ")


def _put_groups(page: Page, run: RunInfo, groups: Sequence[Group], verbosity: int) -> None:
    if not groups:
        return
    cells = sum(len(group.members) for group in groups)
    page.blank()
    quarantined = sum(not member.gates for group in groups for member in group.members)
    aside = f" ({quarantined} in quarantine)" if quarantined else ""
    page.say(f"Red: {_many(cells, 'cell')}{aside}, {_many(len(groups), 'cause')}", style="bold red")
    shown = groups if verbosity >= 1 else groups[:MAX_GROUPS]
    for number, group in enumerate(shown, start=1):
        page.blank()
        _put_group(page, run, number, group)
    if len(shown) < len(groups):
        page.blank()
        page.say(f"{len(groups) - len(shown)} more causes: run with -v, or see report.html.")


def _put_group(page: Page, run: RunInfo, number: int, group: Group) -> None:
    first = group.representative
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in group.verdicts.items())
    quarantined = sum(not member.gates for member in group.members)
    aside = f"; {quarantined} in quarantine" if quarantined else ""
    page.say(f"{number}. {group.check}: {verdicts}{aside}", rest="   ", style="bold red" if group.gates else "yellow")
    for name, text in group.facts():
        page.say(text, first=f"   {name:<9}")
    if len(first.findings) > 1:
        page.say(f"and {_many(len(first.findings) - 1, 'more finding')} in this cell", first="   ")
    for note in first.notes:
        if note.startswith(NOT_KEPT):
            page.say(note, first="   ")
    if not first.findings and first.detail:
        for line in first.detail.rstrip().splitlines()[-MAX_DETAIL:]:
            indent = min(len(line) - len(line.lstrip()), MAX_INDENT)
            page.say(line, first="   | " + " " * indent, rest="   | ")
    page.command(repro_words(run, first))


def _put_slowest(page: Page, results: Sequence[CellResult]) -> None:
    slowest = sorted(results, key=cell_seconds, reverse=True)[:SLOWEST]
    if not slowest or not cell_seconds(slowest[0]):
        return
    page.blank()
    page.say("Slowest cells", style="bold")
    for result in slowest:
        page.say(result.id, first=f"{duration(cell_seconds(result)):>12}  ")


def _put_end(page: Page, view: View, directory: Path | None) -> None:
    run, unmet = view.run, view.unmet
    page.blank()
    if not view.results:
        page.say("No cell has a result.", style="bold red")
    else:
        # A part of a plan is asked for less than its matrix says; the note beside it says so.
        part = " (of this part of the plan)" if any(note.startswith("require ") for note in run.notes) else ""
        said = f"require {run.require}{part}: {'NOT met' if unmet else 'met'}"
        page.say(said, style="bold red" if unmet else "bold green")
    for text in unmet[:MAX_GROUPS]:
        page.say(text, first="  ", rest="    ")
    if len(unmet) > MAX_GROUPS:
        page.say(f"and {len(unmet) - MAX_GROUPS} more", first="  ")
    for text in view.only_quarantined:
        page.say(text, first="  ", rest="    ", style="yellow")
    _put_baseline(page, view)
    _put_audit(page, view)
    if directory is not None:
        page.say(f"reports: {directory}/report.html (results.jsonl, run.json, junit.xml, summary.md)", rest="  ")
    page.say(f"exit code {run.exit_code}: {view.meaning}", style="bold green" if run.exit_code == 0 else "bold red")
    words = next_command(run, view.groups)
    if words:
        page.say("next:")
        page.command(words)


def _put_baseline(page: Page, view: View) -> None:
    report = view.run.baseline
    if report is None:
        return
    page.say(
        baseline_title(report, len(view.results)), style="bold red" if report.findings else "bold green", rest="  "
    )
    for text in view.worse[:MAX_GROUPS]:
        page.say(text, first="  ", rest="    ")
    if len(view.worse) > MAX_GROUPS:
        page.say(f"and {len(view.worse) - MAX_GROUPS} more", first="  ")
    for text in view.beside_baseline:
        page.say(text, first="  ", rest="    ")


def _put_audit(page: Page, view: View) -> None:
    if not view.audited:
        return
    page.say("audit: what is reported is not what was recorded; don't rely on any of it", style="bold red", rest="  ")
    for text in view.audited[:MAX_GROUPS]:
        page.say(text, first="  ", rest="    ")
    if len(view.audited) > MAX_GROUPS:
        page.say(f"and {len(view.audited) - MAX_GROUPS} more", first="  ")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
