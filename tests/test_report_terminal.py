import dataclasses
import io
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from harness.report import print_summary
from harness.report.terminal import summary_page
from harness.report.view import View
from harness.types import NOT_KEPT, Attempt, Finding, Verdict
from tests.support.report_fakes import (
    BYTES,
    STACK,
    ci_axes,
    crashed_results,
    green_results,
    many_results,
    mixed_results,
    one_of_each,
    passed,
    red,
    run_of,
)

ANYTHING = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z", "C"]), max_size=150)
MAKERS = (green_results, mixed_results, crashed_results, one_of_each, list)


def summary(results, width=80, verbosity=0, directory=None, **changes):
    page = summary_page(View(run_of(results, **changes), results), width, verbosity, directory)
    return "\n".join(line.plain for line in page.lines)


def printed(results, **options):
    stream = io.StringIO()
    print_summary(Console(file=stream, width=80, **options), run_of(results), results)
    return stream.getvalue()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(make, width) -> None:
    for line in summary(make(), width, verbosity=1, directory=Path("reports/x")).splitlines():
        assert cell_len(line) <= width


@settings(max_examples=60, deadline=None)
@given(ANYTHING, ANYTHING)
def test_no_text_of_a_cell_widens_a_line_or_drives_the_terminal(name, text) -> None:
    result = dataclasses.replace(passed(ci_axes()[0]), id=name, reason=text)
    axes = {**result.axes, "recipe": text, "nesting": name, "arch": text}
    finding = Finding(name, text, text, text, text)
    bad = red(dataclasses.replace(result, axes=axes), finding, detail=text, verdict=Verdict.CRASH)
    other = red(dataclasses.replace(result, id=name + "2"), detail=text, reason=text, verdict=Verdict.ERROR)
    stream = io.StringIO()
    results = [bad, other, dataclasses.replace(result, id=name + "3", verdict=Verdict.SKIP)]
    print_summary(Console(file=stream, width=80), run_of(results, notes=(text,), matrix=name), results, verbosity=1)
    for line in stream.getvalue().split("\n"):
        assert cell_len(line) <= 80
        assert "\x1b" not in line
        line.encode("utf-8")


def test_a_green_run_ends_in_plain_words() -> None:
    lines = summary(green_results()).splitlines()
    assert lines[-2:] == ["require emulated: met", "exit code 0: all as expected"]
    assert "Red" not in summary(green_results())


def test_a_red_run_tells_cause_predicate_site_and_repro() -> None:
    text = " ".join(summary(mixed_results()).split())
    assert "Red: 20 cells (1 in quarantine), 6 causes" in text
    assert "1. compile.eager_frames: 10 fail expected at most 0 got 1 of 3 frames ran eagerly" in text
    assert "site cases/toy_linear.py:58" in text
    assert "cells recipe=float8_block_scaling and backend=inductor" in text
    assert "exit code 1: 19 cells not as expected" in text


def test_findings_that_a_result_does_not_hold_are_counted() -> None:
    few, many = (red(passed(axes), Finding("numerics.codes", "0", "1")) for axes in ci_axes()[:2])
    many = dataclasses.replace(many, notes=("another note", f"{NOT_KEPT}numerics.codes 5"))
    assert "findings that are not kept: numerics.codes 5" in summary([many])
    assert "another note" not in summary([many])
    assert "not kept" not in summary([few])


def test_the_repro_can_be_pasted() -> None:
    lines = summary(mixed_results(), directory=None).splitlines()
    start = lines.index("next:") + 1
    words = shlex.split("\n".join(lines[start:]).replace("\\\n", ""))
    first = next(r for r in mixed_results() if r.verdict is Verdict.FAIL)
    assert words == ["python", "runner.py", "--matrix", "configs/ci.yaml", "--cell", first.id, "-n", "0"]


def test_evidence_levels_stand_apart() -> None:
    lines = [line.split() for line in summary(mixed_results()).splitlines()]
    assert ["native", "27", "8", "0", "12", "0", "47"] in lines
    assert ["emulated", "11", "0", "0", "5", "2", "18"] in lines
    assert ["traced", "0", "0", "0", "0", "0", "0"] in lines


def test_skips_expected_failures_and_retries_are_not_lost() -> None:
    text = summary(mixed_results())
    assert "Skipped: 2\n  2 x deep nesting has no DelayedScaling partner" in text
    assert "Expected failures: 2\n  2 x numerics.program" in text
    assert "Retried: 1" in text
    assert "timeout, then timeout" in text


def test_a_run_that_executed_nothing_says_so() -> None:
    traced = [passed(dataclasses.replace(axes, arch="sm100")) for axes in ci_axes()[10:20]]
    for require, code in (("traced", 0), ("emulated", 1)):
        text = summary(traced, require=require)
        assert "Nothing was executed: no cell was seen to run FP8 arithmetic on this machine." in text
        assert "B200 (sm100) has never been run natively here: 10 cells were traced" in text
        assert f"exit code {code}" in text
    assert "Nothing was executed" not in summary(green_results())


def test_unmet_evidence_is_listed() -> None:
    text = " ".join(summary(green_results(), require="native").split())
    assert "require native: NOT met mxfp8_block_scaling on reference: passed no cell native, only emulated" in text
    assert text.endswith("next: python runner.py --matrix configs/ci.yaml --plan")


def test_an_empty_run_is_not_met_by_silence() -> None:
    text = summary([])
    assert "No cell has a result." in text
    assert "met" not in text
    assert "exit code 5: nothing ran" in text


def test_missing_results_are_said() -> None:
    text = summary(green_results(), selected=71)
    assert "71 cells were selected, 70 have a result." in text


def test_a_crash_shows_the_end_of_its_stack_once() -> None:
    text = summary(crashed_results())
    assert text.count("RuntimeError: boom") == 1
    assert "every cell (no green cell to compare with)" in text
    assert STACK.splitlines()[0] in text


def test_slowest_cells_only_when_asked() -> None:
    results = green_results()
    results[7] = dataclasses.replace(results[7], attempts=(Attempt(Verdict.PASS, "", "gw0", 99.0),))
    assert "Slowest" not in summary(results)
    assert f"1 min 39 s  {results[7].id[:40]}" in summary(results, verbosity=1)


def test_many_causes_are_cut_and_counted_unless_asked() -> None:
    def change(index, result):
        return red(result, Finding("check", "abcdefghij"[index % 10] * (index % 7 + 1), "z")) if index < 60 else result

    results = many_results(120, change)
    text = summary(results)
    assert "50 more causes: run with -v, or see report.html." in text
    assert "60. check" in summary(results, verbosity=1)


def test_quiet_leaves_the_table_out() -> None:
    assert "Marks:" in summary(green_results())
    assert "Marks:" not in summary(green_results(), verbosity=-1)


def test_without_colour_the_output_is_plain_text_and_says_the_same(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = printed(mixed_results(), force_terminal=True)
    assert "\x1b[1;31mF" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31mF" not in printed(mixed_results(), force_terminal=True)
    assert "\x1b[" not in printed(mixed_results())
    assert ".FF" in printed(mixed_results())


def test_a_stream_that_only_takes_ascii_gets_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    result = red(passed(ci_axes()[0]), dataclasses.replace(BYTES, got="größer → ∞"))
    print_summary(Console(file=stream, width=80), run_of([result]), [result], directory=Path("reports/ü"))
    stream.flush()
    assert b"gr\\xf6\\xdfer" in stream.buffer.getvalue()
