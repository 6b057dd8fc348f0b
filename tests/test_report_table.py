import dataclasses

from rich.cells import cell_len

from harness.report.marks import LEGEND, NOT_PLANNED, QUARANTINED, REFUSED, cell_seconds, duration, mark_of
from harness.report.page import Page
from harness.report.table import build_tables
from harness.report.table_text import put_tables
from harness.types import Attempt, Axes, Evidence, Spec, Verdict
from tests.support.report_fakes import (
    BYTES,
    ci_axes,
    green_results,
    many_results,
    mixed_results,
    one_of_each,
    passed,
    red,
)


def text_of(results, width=80, **options):
    page = Page(width)
    put_tables(page, build_tables(results), **options)
    return "\n".join(line.plain for line in page.lines)


def test_every_verdict_and_level_has_a_letter_of_its_own_in_the_legend() -> None:
    letters = [mark.letter for mark in LEGEND]
    assert len(set(letters)) == len(letters)
    used = [mark_of(result) for result in one_of_each()]
    assert len(set(used)) == len(Verdict) - 1 + 4 + 1  # four levels of a pass, and the quarantine
    assert set(used) <= set(LEGEND)


def test_a_pass_without_evidence_looks_wrong() -> None:
    assert mark_of(passed(ci_axes()[0], evidence=Evidence.NONE)).letter == "?"


def test_a_pass_without_judged_numerics_is_marked() -> None:
    assert mark_of(passed(ci_axes()[10], checks=("compile.graphs",))).letter == "u"


def test_refusals_and_quarantines_are_marked_apart() -> None:
    assert mark_of(green_results()[0]) is REFUSED
    assert mark_of(red(passed(ci_axes()[0]), BYTES, gates=False)) is QUARANTINED
    assert mark_of(passed(ci_axes()[0], gates=False)).letter == "."


def test_every_result_stands_in_exactly_one_position() -> None:
    for results in (mixed_results(), many_results(500)):
        found = [r.id for table in build_tables(results) for cell in table.cells.values() for r in cell.values()]
        assert sorted(found) == sorted(result.id for result in results)


def test_rows_columns_and_slots_keep_the_order_of_the_plan() -> None:
    (table,) = build_tables(mixed_results())
    assert table.rows[0] == "delayed_scaling(amax_history_len=16)"
    assert table.columns == ("flat", "nested", "nested_disabled", "deep", "sequential")
    assert table.explained() == [
        "1: fullgraph=true backend=aot_eager",
        "2: fullgraph=true backend=inductor",
        "3: fullgraph=false backend=aot_eager",
    ]
    assert [text for text, _ in table.pieces("float8_block_scaling", "deep")] == [".", "F", "F"]
    assert [text for text, _ in table.pieces("nvfp4_block_scaling", "sequential")] == ["C", "-", "C"]


def test_case_provider_and_architecture_split_tables() -> None:
    axes = ci_axes()[10]
    results = [
        passed(axes),
        passed(dataclasses.replace(axes, arch="sm100")),
        passed(dataclasses.replace(axes, provider=Spec("other"))),
    ]
    titles = [table.title for table in build_tables(results)]
    assert titles == [
        "case toy_linear, provider reference, arch host (cpu)",
        "case toy_linear, provider reference, arch sm100",
        "case toy_linear, provider other, arch host (cpu)",
    ]


def test_too_many_marks_become_counts_with_reds_first() -> None:
    results = many_results(2400, lambda i, r: red(r, BYTES) if i in (12, 72) else r)
    (table,) = build_tables(results)
    assert table.counted
    assert ["2F", "78."] in [[t for t, _ in table.pieces(row, c)] for row in table.rows for c in table.columns]
    assert table.pieces("no such row", "flat") == [(NOT_PLANNED.letter, NOT_PLANNED)]
    text = text_of(results)
    assert "2F 78." in text
    assert "counts its cells by mark; fullgraph, seed vary within it" in text


def test_the_grid_reads_without_colour() -> None:
    lines = text_of(mixed_results()).splitlines()
    assert lines[1].split() == ["flat", "nested", "nested_disabled", "deep", "sequential"]
    row = next(line for line in lines if line.startswith("float8_block_scaling"))
    assert row.split() == ["float8_block_scaling", ".F.", ".FF", ".F.", ".FF", ".F."]
    column = lines[1].index("nested_disabled")
    assert row[column : column + 3] == ".F."


def test_the_legend_is_always_there() -> None:
    for results in ([], green_results()):
        text = text_of(results)
        assert all(f"{mark.letter} {mark.words}" in " ".join(text.split()) for mark in LEGEND)


def test_any_width_holds_the_same_marks() -> None:
    def marks(text):
        return sorted(word for word in text.split() if len(word) == 3 and set(word) <= set(".:FCTxqrs-"))

    wide = marks(text_of(mixed_results(), 200))
    assert len(wide) == 30
    for width in (30, 50, 64, 80, 120):
        text = text_of(mixed_results(), width)
        assert all(cell_len(line) <= width for line in text.splitlines())
        assert marks(text) == wide


def test_of_many_tables_those_with_reds_are_shown() -> None:
    axes = [
        Axes("toy_linear", Spec("reference"), Spec("float8_current_scaling"), arch=arch, nesting=nesting)
        for arch in ("host", "sm89", "sm90", "sm100", "sm103", "sm120")
        for nesting in ("flat", "deep")
    ]
    results = [passed(a) for a in axes]
    results[-1] = red(results[-1], BYTES)
    text = text_of(results, limit=2)
    assert "arch sm120" in text
    assert "arch host" in text
    assert "4 more tables (0 with reds) are in report.html." in text


def test_durations_read_as_people_say_them() -> None:
    spoken = [duration(s) for s in (0.25, 9.94, 12.4, 59.7, 61, 3725)]
    assert spoken == ["0.2 s", "9.9 s", "12 s", "1 min 00 s", "1 min 01 s", "1 h 02 min"]


def test_a_cell_costs_all_its_attempts() -> None:
    attempts = (Attempt(Verdict.INFRA, "", "gw0", 3.0), Attempt(Verdict.PASS, "", "gw1", 2.0))
    assert cell_seconds(passed(ci_axes()[0], attempts=attempts)) == 5.0
    assert cell_seconds(passed(ci_axes()[0])) == 0.25
