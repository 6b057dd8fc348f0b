import dataclasses

from rich.cells import cell_len

from harness.report.marks import LEGEND, NOT_PLANNED, QUARANTINED, REFUSED, cell_seconds, duration, mark_of
from harness.report.page import Page
from harness.report.table import build_tables
from harness.report.table_text import put_tables
from harness.types import RECIPES, Attempt, Axes, CellResult, Evidence, Spec, Verdict
from tests.support.report_fakes import (
    BYTES,
    ci_axes,
    green_results,
    library_results,
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
    assert len(set(used)) == len(Verdict) - 1 + 5 + 1  # five levels of a pass, and the quarantine
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
    for results in (mixed_results(), library_results(), many_results(500)):
        found = [r.id for table in build_tables(results) for cell in table.cells.values() for r in cell.values()]
        assert sorted(found) == sorted(result.id for result in results)


def test_rows_columns_and_slots_keep_the_order_of_the_plan() -> None:
    (table,) = build_tables(mixed_results())
    assert (table.row_axes, table.rows[0]) == (("recipe",), ("delayed_scaling(amax_history_len=16)",))
    assert table.columns == ("flat", "nested", "nested_disabled", "deep", "sequential")
    assert table.explained() == [
        "1: fullgraph=true backend=aot_eager",
        "2: fullgraph=true backend=inductor",
        "3: fullgraph=false backend=aot_eager",
    ]
    assert [text for text, _ in table.pieces(("float8_block_scaling",), "deep")] == [".", "F", "F"]
    assert [text for text, _ in table.pieces(("nvfp4_block_scaling",), "sequential")] == ["C", "-", "C"]


def program(case: str, recipe: str = "float8_current_scaling", **values) -> CellResult:
    return passed(Axes(case, values.pop("provider", Spec("reference")), Spec(recipe), **values))


def test_cases_of_one_nesting_share_a_table_of_cases_and_variants_against_recipes() -> None:
    nestings, library = build_tables(library_results())
    assert nestings.title == "case toy_linear, provider reference, arch host (cpu)"
    assert library.title == "provider reference, arch host (cpu)"
    assert library.row_axes == ("case", "variant or target")
    assert library.rows[:4] == (
        ("autocast_outside", ""),
        ("recipe_switch", "fields"),
        ("recipe_switch", "mutated_in_place"),
        ("recipe_switch", "two_fields_differ"),
    )
    assert library.rows[-1] == ("target", "my_project.models.head:build")
    assert library.columns == tuple(name for name in RECIPES if name != "delayed_scaling")
    assert library.slot_axes == ("fullgraph", "backend")
    assert library.text(("checkpoint", "reentrant"), "mxfp8_block_scaling") == "::FF"
    assert library.reds == 14


def test_without_variants_a_row_is_a_case_and_one_case_keeps_its_own_table() -> None:
    (table,) = build_tables([program("amp"), program("stack")])
    assert (table.row_axes, table.rows) == (("case",), (("amp",), ("stack",)))
    (table,) = build_tables([program("amp"), program("amp", "mxfp8_block_scaling")])
    assert table.title == "case amp, provider reference, arch host (cpu)"
    assert (table.row_axes, table.columns) == (("recipe",), ("flat",))


def test_one_variant_alone_stands_in_the_title() -> None:
    (table,) = build_tables([program("amp", variant="inside"), program("amp", "mxfp8_block_scaling", variant="inside")])
    assert table.title == "case amp, variant inside, provider reference, arch host (cpu)"
    assert table.row_axes == ("recipe",)


def test_variants_in_several_nestings_are_rows_above_the_recipes() -> None:
    results = [
        program("amp", recipe, variant=variant, nesting=nesting)
        for variant in ("around", "inside")
        for recipe in ("float8_current_scaling", "mxfp8_block_scaling")
        for nesting in ("flat", "deep")
    ]
    (table,) = build_tables(results)
    assert table.row_axes == ("variant", "recipe")
    assert (table.rows[2], table.columns) == (("inside", "float8_current_scaling"), ("flat", "deep"))
    assert text_of(results).splitlines()[2:8] == [
        "around",
        "  float8_current_scaling  .     .",
        "  mxfp8_block_scaling     :     :",
        "inside",
        "  float8_current_scaling  .     .",
        "  mxfp8_block_scaling     :     :",
    ]


def test_nestings_are_never_mixed_in_an_overview() -> None:
    nested = [program(case, nesting="nested") for case in ("amp", "stack")]
    tables = build_tables([*nested, program("checkpoint"), program("disabled")])
    assert [(table.title, len(table.rows)) for table in tables] == [
        ("provider reference, arch host (cpu), nesting nested", 2),
        ("provider reference, arch host (cpu)", 2),
    ]


def test_results_from_before_there_were_variants_still_have_tables() -> None:
    old = [
        dataclasses.replace(result, axes={k: v for k, v in result.axes.items() if k not in ("variant", "target")})
        for result in mixed_results()
    ]
    assert text_of(old) == text_of(mixed_results())


def test_variants_that_look_alike_are_one_row_and_others_are_not() -> None:
    table = build_tables(library_results())[1]
    brief = dict(table.brief())
    assert brief[("exception", "5 variants")] == ("exception", "region")
    assert brief[("target", "2 targets")] == ("target", "my_project.models.block:build")
    assert [shown for shown in brief if shown[0] == "amp"] == [("amp", "around"), ("amp", "inside")]
    shown = {row[0] for row in brief}
    assert shown == {row[0] for row in table.rows}


def test_the_overview_at_eighty_columns() -> None:
    lines = text_of(library_results()).splitlines()
    start = lines.index("provider reference, arch host (cpu)")
    assert all(cell_len(line) <= 80 for line in lines)
    assert [line.split() for line in lines[start + 1 : start + 4]] == [
        ["float8_", "float8_", "mxfp8_", "nvfp4_", "float8_"],
        ["current_", "block_", "block_", "block_", "rowwise_"],
        ["scaling"] * 5,
    ]
    at = lines.index("checkpoint")
    assert lines[at - 1].split() == ["reset_between_calls,", "2", "variants", "....", "....", "::::", "::::", "...."]
    assert [line.split() for line in lines[at + 1 : at + 3]] == [
        ["reentrant", "..FF", "..FF", "::FF", "::FF", "..FF"],
        ["nonreentrant", "....", "....", "::::", "::::", "...."],
    ]


def test_the_overview_at_two_hundred_columns_breaks_no_name() -> None:
    lines = text_of(library_results(), 200).splitlines()
    head = next(line for line in lines if "float8_rowwise_scaling" in line and "mxfp8_block_scaling" in line)
    row = lines[lines.index("checkpoint") + 1]
    assert row.index("..FF") == head.index("float8_current_scaling")
    assert row.rindex("..FF") == head.index("float8_rowwise_scaling")


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
    assert table.pieces(("no such row",), "flat") == [(NOT_PLANNED.letter, NOT_PLANNED)]
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


def test_any_width_holds_the_same_marks_of_an_overview() -> None:
    def marks(text):
        return sorted(word for word in text.split() if len(word) == 4 and set(word) <= set(".:F-"))

    wide = marks(text_of(library_results(), 200))
    assert wide.count("..FF") == 3
    for width in (20, 40, 60, 66, 80, 110):
        text = text_of(library_results(), width)
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
