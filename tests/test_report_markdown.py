import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.report.markdown import COMMENT_LIMIT, SUMMARY_LIMIT, comment_markdown, summary_markdown
from harness.report.view import View
from harness.types import Finding, Verdict
from tests.support.report_fakes import (
    BYTES,
    ci_axes,
    crashed_results,
    green_results,
    library_results,
    many_results,
    mixed_results,
    one_of_each,
    passed,
    red,
    run_of,
)

ANYTHING = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z", "C"]), max_size=100)


def summary(results, **changes):
    return summary_markdown(View(run_of(results, **changes), results))


def comment(results, **changes):
    return comment_markdown(View(run_of(results, **changes), results))


def many_causes(count):
    def change(index, result):
        return red(result, Finding("check", "x" * 500, "".join(chr(97 + int(d)) for d in str(index)), "漢" * 500))

    return many_results(count, change)


def outside_code(text):
    """What is left when code blocks and code spans are taken out, as CommonMark pairs their fences."""
    text = re.sub(r"^(`{3,})[^\n]*\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def test_it_says_first_whether_all_is_as_expected() -> None:
    assert summary(green_results()).startswith(
        "## `ci`: as expected\n\n70 cells in 43 s; exit code 0: all as expected."
    )
    assert summary(mixed_results()).startswith("## `ci`: NOT as expected\n")


def test_levels_of_evidence_stand_apart() -> None:
    text = summary(mixed_results())
    assert "| native | 27 | 8 | 0 | 12 | 0 | 47 |" in text
    assert "| emulated | 11 | 0 | 0 | 5 | 2 | 18 |" in text


def test_unmet_evidence_and_what_was_never_native_are_told() -> None:
    traced = [passed(dataclasses.replace(ci_axes()[10], arch="sm100"))]
    text = summary(traced, require="native")
    assert "Require `native`: **not met**." in text
    assert "- `nothing was executed: no cell was seen to run FP8 arithmetic on this machine`" in text
    assert "has never been run natively here" in text
    assert "Require `emulated`: met." in summary(green_results())


def test_every_group_and_every_red_is_listed() -> None:
    text = summary(mixed_results())
    assert "### Red: 20 cells, 6 causes" in text
    assert "#### 2. `numerics.codes`: 5 fail" in text
    assert "- cells: `recipe=float8_block_scaling and backend=inductor`" in text
    for result in mixed_results():
        if result.verdict.is_red:
            assert result.id in text


def test_the_matrix_is_a_table_with_its_legend() -> None:
    text = summary(mixed_results())
    assert "| recipe | `flat` | `nested` | `nested_disabled` | `deep` | `sequential` |" in text
    assert "| `float8_block_scaling` | `.F.` | `.FF` | `.F.` | `.FF` | `.F.` |" in text
    assert "`F` fail" in text
    assert "In each position, left to right: `1: fullgraph=true backend=aot_eager`" in text


def test_a_library_of_cases_is_one_table_in_which_programs_that_look_alike_are_one_row() -> None:
    text = summary(library_results())
    assert (text.count("\n| recipe |"), text.count("\n| case |")) == (1, 1)  # toy_linear's, and the others'
    head = "| case | variant or target | `float8_current_scaling` | `float8_block_scaling` | `mxfp8_block_scaling` |"
    assert head in text
    assert "| `autocast_outside` |  | `....` | `....` | `::::` |" in text
    assert "| `exception` | 5 variants | `....` | `....` | `::::` |" in text
    assert "| `checkpoint` | `reentrant` | `..FF` | `..FF` | `::FF` |" in text
    assert "| `checkpoint` | `nonreentrant` | `....` |" in text
    assert "| `target` | 2 targets | `---.` |" in text


def test_one_table_too_many_is_one() -> None:
    results = [
        dataclasses.replace(result, axes={**result.axes, "case": f"case_{'n' * 90}_{index}", "nesting": "flat"})
        for index, result in enumerate(many_causes(600))
    ]
    assert "causes of red cells and 1 table.**" in comment(results)


@pytest.mark.parametrize("make", [green_results, mixed_results, library_results, crashed_results, one_of_each, list])
def test_ordinary_runs_are_whole_in_both(make) -> None:
    for text in (summary(make()), comment(make())):
        assert "Left out" not in text
        assert len(text) < COMMENT_LIMIT


@pytest.mark.parametrize(("render", "limit"), [(summary, SUMMARY_LIMIT), (comment, COMMENT_LIMIT)])
def test_what_is_too_long_is_cut_by_whole_groups_and_says_so(render, limit) -> None:
    results = many_causes(1200)
    text = render(results)
    assert limit // 2 < len(text.encode("utf-8")) < limit
    listed = text.count("\n#### ")
    left = int(re.search(r"Left out, to stay under GitHub's size limit: (\d+) causes of red cells", text)[1])
    assert listed + left == 1200
    assert text.count("\n```sh\n") == listed
    assert "Marks: " in text


def test_many_tables_do_not_crowd_out_the_reds() -> None:
    results = []
    for index, result in enumerate(many_causes(600)):
        axes = {**result.axes, "provider": f"provider_{'n' * 60}_{index}"}
        results.append(dataclasses.replace(result, axes=axes))
    text = comment(results)
    assert len(text.encode("utf-8")) < COMMENT_LIMIT
    assert text.count("\n#### ") > 10
    assert re.search(r"causes of red cells and \d+ tables", text)


@settings(max_examples=80, deadline=None)
@given(ANYTHING)
def test_nothing_of_a_message_is_markdown(text) -> None:
    marker = f"<script>@someone [x](y) | {text}"
    result = dataclasses.replace(passed(ci_axes()[0]), id=marker, reason=marker)
    results = [
        red(result, Finding(marker, marker, marker, marker, marker), detail=marker),
        red(dataclasses.replace(result, id=marker + "2"), verdict=Verdict.CRASH, reason=marker),
    ]
    plain = outside_code(summary(results, name=marker, notes=(marker,)))
    assert "<script>" not in plain
    assert "@someone" not in plain
    assert "[x]" not in plain


def test_a_bar_does_not_end_a_table_cell() -> None:
    result = passed(ci_axes()[10])
    result = dataclasses.replace(result, axes={**result.axes, "recipe": "a|b"})
    assert "| `a\\|b` |" in summary([result])


def test_backticks_get_a_longer_fence() -> None:
    result = red(passed(ci_axes()[0]), dataclasses.replace(BYTES, got="a ``` b `"))
    assert "- got: ```` a ``` b ` ````" in summary([result])
