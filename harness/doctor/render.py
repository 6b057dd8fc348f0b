"""The report on a terminal: reads without colour and at 80 columns; the last lines matter most."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console

from harness.doctor.types import Answer, Item, MatrixReport, ProviderReport, RecipeSupport, Report, Shortfall, Status
from harness.report.page import Page
from harness.report.progress import is_ascii
from harness.types import RECIPES

MARKS: Mapping[Status, tuple[str, str, str]] = {
    Status.OK: ("ok", "green", "as it should be"),
    Status.NOTE: ("--", "yellow", "to know"),
    Status.PROBLEM: ("!!", "bold red", "to mend"),
    Status.FATAL: ("XX", "bold red", "nothing runs before it is mended"),
}
LEVEL_STYLES: Mapping[str, str] = {
    "native": "green",
    "emulated": "cyan",
    "unsupported": "yellow",
    "absent": "dim",
    "error": "bold red",
}
NOT_USABLE: Mapping[Answer, tuple[Status, str]] = {
    Answer.UNAVAILABLE: (Status.NOTE, "not usable here: "),
    Answer.ERROR: (Status.PROBLEM, "raised "),
    Answer.DIED: (Status.PROBLEM, "its process "),
}
COUNTS = ("native", "emulated", "rehearsed", "traced", "negative", "skip", "unknown")
_INDENT = "     "  # below the text of a marked line

Span = tuple[str, str]


def print_report(console: Console, report: Report) -> None:
    """Print the report."""
    for line in report_page(report, console.width, ascii_only=is_ascii(console)).lines:
        console.print(line, soft_wrap=True)


def report_page(report: Report, width: int, *, ascii_only: bool = False) -> Page:
    """The report as lines of at most ``width`` cells."""
    page = Page(width, ascii_only=ascii_only)
    page.flow([f"{mark} {words}" for mark, _, words in MARKS.values()], gap="   ")
    _head(page, "Stack")
    for item in report.stack:
        _put_item(page, item, 2 + max(cell_len(page.clean(one.topic)) for one in report.stack))
    _put_gpus(page, report)
    _put_recipes(page, report.providers)
    for provider in report.providers:
        _put_provider(page, provider)
    _put_environment(page, report)
    if report.matrix is not None:
        _put_matrix(page, report.matrix)
    page.blank()
    style = "bold red" if report.exit_code else "bold green"
    page.say(f"exit code {report.exit_code}: {report.exit_reason}", rest="  ", style=style)
    return page


def _head(page: Page, text: str) -> None:
    page.blank()
    page.say(text, rest="  ", style="bold")


def _put_item(page: Page, item: Item, column: int = 0) -> None:
    """One line; ``column`` is the width of all topics, 0 where they don't stand in a column."""
    topic = page.clean(item.topic)
    if column and 4 * column < 3 * page.width:
        _marked(page, item.status, item.text, topic + " " * (column - cell_len(topic)))
    else:
        _marked(page, item.status, f"{topic}: {item.text}")
    _put_command(page, item.fix)


def _marked(page: Page, status: Status, text: str, topic: str = "") -> None:
    mark, style, _ = MARKS[status]
    start = len(page.lines)
    page.say(text, first=f"  {mark} {topic}", rest=_INDENT + " " * cell_len(topic))
    page.lines[start].stylize(style, 2, 4)


def _put_command(page: Page, command: str) -> None:
    """A command alone on its lines, so that it can be pasted."""
    if not command:
        return
    if cell_len(_INDENT + command) <= page.width:
        page.say(command, first=_INDENT, style="bold")
    else:
        page.command(shlex.split(command))


def _put_gpus(page: Page, report: Report) -> None:
    if not report.gpus:
        return
    _head(page, f"GPUs ({report.visible_devices})")
    for gpu in report.gpus:
        what = f"{gpu.name}, {gpu.arch}, compute capability {gpu.capability}"
        memory = f"{gpu.memory_mib / 1024:.1f} GiB, {gpu.free_mib / 1024:.1f} GiB free"
        _marked(page, Status.PROBLEM if gpu.error else Status.OK, f"cuda:{gpu.index}: {what}, {memory}")


def _put_recipes(page: Page, providers: Sequence[ProviderReport]) -> None:
    """Recipe by provider, for those that could be asked."""
    usable = [one for one in providers if one.recipes]
    if not usable:
        return
    _head(page, f"Recipes on {usable[0].arch}")
    levels = {one.provider: {support.recipe: support for support in one.recipes} for one in usable}
    rows = [[(recipe, ""), *(_level(levels[one.provider].get(recipe)) for one in usable)] for recipe in RECIPES]
    _put_grid(page, ["", *(one.provider for one in usable)], rows)


def _level(support: RecipeSupport | None) -> Span:
    if support is None:
        return "-", "dim"
    return support.level + (" !!" if support.disputed else ""), LEVEL_STYLES.get(support.level, "")


def _put_provider(page: Page, report: ProviderReport) -> None:
    _head(page, report.provider)
    if report.answer is not Answer.USABLE:
        status, said = NOT_USABLE[report.answer]
        _marked(page, status, said + report.reason)
        for line in report.output:
            page.say(line, first=_INDENT + "| ")
        _put_command(page, report.fix)
        return
    for text, status in _reasons(report.recipes):
        _marked(page, status, text)
    shown = [one for one in report.findings if one.status is not Status.OK or not said_elsewhere(one)]
    for finding in shown:
        _put_item(page, finding)
    if all(one.level == "native" for one in report.recipes):
        _marked(page, Status.OK, "every recipe runs natively")


def _reasons(recipes: Sequence[RecipeSupport]) -> list[tuple[str, Status]]:
    """Why recipes aren't native, those of one reason together; and beliefs that the judge would call wrong."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for one in recipes:
        if one.level != "native" or one.disputed:
            grouped.setdefault((one.level, one.reason, one.disputed), []).append(one.recipe)
    lines = []
    for (level, reason, disputed), names in grouped.items():
        text = f"{', '.join(names)}: {level}" + (f": {reason}" if reason else "")
        text += f" ({disputed}: cells will be red)" if disputed else ""
        lines.append((text, Status.PROBLEM if disputed or level == "error" else Status.NOTE))
    return lines


def said_elsewhere(finding: Item) -> bool:
    """True for a provider's finding that repeats the table of recipes or the environment."""
    return finding.topic == "environment" or finding.topic.endswith(RECIPES)


def _put_environment(page: Page, report: Report) -> None:
    _head(page, "Environment variables that change counts or results")
    if not report.environment:
        page.say("none is set", first="  ")
    for one in report.environment:
        shown = f"{one.name}={shlex.quote(one.value)}"
        if one.effect == "recorded":
            _marked(page, Status.NOTE, f"recorded: {shown}" + (f" ({one.text})" if one.text else ""))
        else:
            _marked(page, Status.FATAL, f"{one.effect}: {shown} {one.text}")


def _put_matrix(page: Page, matrix: MatrixReport) -> None:
    _head(page, f"Matrix {matrix.name} ({matrix.matrix}): {matrix.cells} cells here, if each passes that can")
    rare = ("rehearsed", "unknown")
    counts = [name for name in COUNTS if name not in rare or any(getattr(row, name) for row in matrix.rows)]
    for provider in dict.fromkeys(row.provider for row in matrix.rows):
        page.say(provider, first="  ", style="bold")
        rows: list[list[Span]] = []
        for row in matrix.rows:
            if row.provider != provider:
                continue
            numbers = [(str(getattr(row, name) or "-"), "") for name in counts]
            mark, style, _ = MARKS[Status.OK if row.met else Status.PROBLEM]
            rows.append([(mark, style), (row.recipe, ""), *numbers, (row.best, LEVEL_STYLES.get(row.best, ""))])
        _put_grid(page, ["", "", *counts, "best"], rows, right=range(2, len(counts) + 2))
    for note in matrix.notes:
        _marked(page, Status.NOTE, note)
    _put_require(page, matrix)


def _put_require(page: Page, matrix: MatrixReport) -> None:
    page.blank()
    style = "green" if matrix.met else "bold red"
    page.say(f"require {matrix.require}: {'can' if matrix.met else 'can NOT'} be met here", style=style)
    alike: dict[Shortfall, list[str]] = {}
    for one in matrix.shortfalls:
        alike.setdefault(dataclasses.replace(one, recipe=""), []).append(one.recipe)
    for one, recipes in alike.items():
        why = f": {one.why}" if one.why else ""
        text = f"{', '.join(recipes)} on {one.provider}: required {one.required}, best here {one.best}{why}"
        _marked(page, Status.PROBLEM, text)
        page.say(f"{one.next}:", first=_INDENT)
        _put_command(page, one.command)
    if matrix.command:
        _marked(page, Status.NOTE, "what can be met here:")
        _put_command(page, matrix.command)


def _put_grid(page: Page, heads: Sequence[str], rows: Sequence[Sequence[Span]], right: Sequence[int] = ()) -> None:
    """A table whose ``right`` columns stand to the right; a list where the page is too narrow for it."""
    lines = [[(head, "bold") for head in heads], *rows]
    cells = [[(page.clean(text), style) for text, style in line] for line in lines]
    widths = [max(cell_len(line[column][0]) for line in cells) for column in range(len(heads))]
    gap = next((gap for gap in (2, 1) if 2 + sum(widths) + gap * (len(widths) - 1) <= page.width), 0)
    if not gap:
        for row in cells[1:]:
            named = zip(cells[0], row, strict=True)
            page.flow([f"{head} {text}".strip() for (head, _), (text, _) in named], first="  ", rest="    ", gap=", ")
        return
    for line in cells:
        spans: list[Span] = [("  ", "")]
        for column, (text, style) in enumerate(line):
            blank = " " * (widths[column] - cell_len(text))
            before = " " * gap if column else ""
            spans += [(before + (blank if column in right else ""), ""), (text, style)]
            spans.append(("" if column in right else blank, ""))
        page.spans([span for span in spans if span[0]])
