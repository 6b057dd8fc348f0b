"""harness.judge.calibrate_table: figures of the tables, and a page of which one section changes."""

from __future__ import annotations

import math

import pytest

from harness.judge.calibrate_catalogue import BOUNDS, EQUALITIES, names
from harness.judge.calibrate_records import Skipped
from harness.judge.calibrate_table import number, replace_section, rows, section, unnamed, worst_of
from tests.support.calibrating import KERNEL, PROGRAM, calibration, cell, every_name, met


def table_lines(text: str) -> list[list[str]]:
    return [[part.strip() for part in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]


def test_a_row_has_counts_by_data_and_the_worst_cell() -> None:
    cells = [
        cell(met(worst=0.1, count=3)),
        cell(met(worst=0.3, count=4), cell="the worst", seed=1),
        cell(met(worst=0.2), met(PROGRAM, 0.45), data="positive"),
        cell(met(worst=0.4), provider="other", cell="other's"),
    ]
    mine, other = [row for row in rows(cells, BOUNDS) if row.bound.name == KERNEL]
    assert (mine.provider, mine.counts) == ("reference", {"normal": 7, "positive": 2, "heavy_tailed": 0})
    assert mine.ratios["normal"] == [0.1, 0.3]
    assert mine.worst is not None
    assert (mine.worst.ratio, mine.worst.cell, mine.worst.where) == (0.3, "the worst", "eager, layers.0 fprop")
    assert mine.worst.headroom == pytest.approx(1 / 0.3)
    assert other.worst is not None
    assert other.worst.cell == "other's"
    assert len(rows(cells, BOUNDS)) == 2 * len(BOUNDS)


def test_nan_is_the_worst_of_all() -> None:
    worst = worst_of([cell(met(worst=0.3)), cell(met(worst=math.nan), cell="nan"), cell(met(worst=9.0))])
    assert worst is not None
    assert (worst.ratio, worst.cell, worst.headroom) == (math.inf, "nan", 0)
    assert worst_of([cell(met(worst=None))]) is None
    assert worst_of([]) is None


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0, "0"),
        (0.0004, "< 0.001"),
        (0.012, "0.012"),
        (0.3901, "0.40"),
        (0.5, "0.50"),
        (0.501, "0.51"),
        (1.0, "1.0"),
        (12.34, "13"),
        (1234.5, "1235"),
        (math.inf, "inf"),
        (math.nan, "inf"),
    ],
)
def test_numbers_are_never_rounded_down(ratio: float, shown: str) -> None:
    assert number(ratio) == shown


def test_a_section_has_every_bound_whether_met_or_not() -> None:
    text = section([calibration([cell(met(worst=0.2)), cell(met(worst=0.25), data="positive")])])
    assert "2 cells judged, 0 findings. Largest value / bound **0.25**" in text
    for bound in BOUNDS:
        assert text.count(f"| `{bound.name[0]}` {bound.name[1]} | reference |") == 1
    (line,) = [line for line in table_lines(text) if line[0] == "`numerics.kernel` fprop"]
    assert line[2:7] == ["4", "0.20 · 0.20", "0.25 · 0.25", "–", "4.0"]
    assert "fprop, fast accumulation | reference | kernels that are asked for fast accumulation |" in text


def test_an_equality_that_compared_nothing_shows() -> None:
    text = section([calibration([cell(met(), met(EQUALITIES[0].name, None, 1234), data="positive")])])
    first, second = [line for line in table_lines(text) if line[0].endswith((EQUALITIES[0].value, EQUALITIES[1].value))]
    assert first[2:] == ["**none**", "1,234", "**none**"]
    assert second[2:] == ["**none**"] * 3


def test_tables_are_well_formed_when_everything_was_met() -> None:
    text = section([calibration([cell(*every_name())])])
    assert "Bounds that no run met" not in text
    heads = [i for i, line in enumerate(text.splitlines()) if line.startswith("|---")]
    assert len(heads) == 5
    lines = text.splitlines()
    for head in heads:
        for line in lines[head - 1 :]:
            if not line:
                break
            assert line.count("|") == lines[head].count("|")


@pytest.mark.parametrize("worst", [0.6, math.nan, math.inf])
def test_a_near_bound_is_called_work_to_do(worst: float) -> None:
    text = section([calibration([cell(met(worst=worst), cell="near")])])
    assert "work to do** (`near`, eager, layers.0 fprop)" in text
    assert "keeps a factor of two" not in text


def test_half_of_a_bound_that_is_reached_by_construction_doesnt_hide_the_rest() -> None:
    (tie,) = [bound for bound in BOUNDS if bound.reached]
    text = section([calibration([cell(met(worst=0.2), met(tie.name, 0.5))])])
    assert "Largest value / bound **0.20** (`numerics.tap` output = recorded output + bias reaches 0.5" in text
    assert "work to do" in section([calibration([cell(met(worst=0.2), met(tie.name, 0.51))])])


def test_what_was_not_measured_is_said() -> None:
    skipped = (Skipped("te", "mxfp8_block_scaling", "eager runs", "needs a | newer GPU", 4),)
    silent = cell(judged=False, notes=("numerics not judged: RHT",), met=(), cell="silent")
    text = section([calibration([cell(), silent], skipped=skipped, planned=9)])
    assert "1 cells judged, 0 findings. 1 cells gave nothing to judge." in text
    assert "# interrupted: 2 of 9 cells" in text
    assert r"| te | mxfp8_block_scaling | eager runs | needs a \| newer GPU |" in text
    assert "| reference | float8_current_scaling | `silent` | numerics not judged: RHT |" in text
    assert "Nothing that was asked for." in section([calibration([cell()])])


def test_findings_are_counted() -> None:
    assert "1 cells judged, 2 findings." in section([calibration([cell(findings=("a", "b"))])])


def test_nothing_measured_makes_no_section() -> None:
    for nothing in ([], [calibration()], [calibration([cell(judged=False)])]):
        with pytest.raises(ValueError, match="nothing was measured"):
            section(nothing)


def test_undecided_projections_are_counted() -> None:
    items = (met(("numerics.alpha", "fprop"), 0.1, 5), met(("numerics.alpha", "undecided"), None, 2))
    assert "α was decided in 5 of 7 projections (reference); in the others" in section([calibration([cell(*items)])])
    assert "α was decided in 5 of 5 projections (reference).\n" in section([calibration([cell(items[0])])])


def test_values_of_zero_have_no_headroom() -> None:
    text = section([calibration([cell(met(worst=0.0))])])
    (line,) = [line for line in table_lines(text) if line[0] == "`numerics.kernel` fprop"]
    assert line[2:] == ["2", "0 · 0", "–", "–", "–", "–"]


def test_names_that_the_catalogue_lacks() -> None:
    assert unnamed([cell(met(("numerics.kernel", "new")), met())], names()) == [("numerics.kernel", "new")]
    assert unnamed([cell(*every_name())], names()) == []


def test_one_section_of_a_page_is_replaced() -> None:
    page = replace_section(replace_section("# Title\n\nText.\n", "CPU", "## CPU\nold"), "H200 (sm90)", "## H200\nkept")
    assert page.startswith(
        "# Title\n\nText.\n\n<!-- calibration: CPU -->\n## CPU\nold\n<!-- end of calibration: CPU -->"
    )
    assert replace_section(page, "CPU", "## CPU\nnew") == page.replace("old", "new")
    assert replace_section(page, "CPU", "## CPU\nold") == page
    assert replace_section("", "CPU", "x") == "<!-- calibration: CPU -->\nx\n<!-- end of calibration: CPU -->\n"


def test_broken_markers_are_refused() -> None:
    page = replace_section("", "CPU", "x")
    for broken in (page.replace("<!-- end", "<!-- enb"), page + page, page.replace("<!-- calibration", "<!-- x")):
        with pytest.raises(ValueError, match="markers of section 'CPU'"):
            replace_section(broken, "CPU", "y")
