import dataclasses
import html
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.report.html import html_chunks
from harness.report.view import View
from harness.types import Attempt, Finding, Verdict
from tests.support.report_fakes import (
    BYTES,
    STACK,
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

ANYTHING = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z", "C"]), max_size=60)
VOID = {"meta", "input", "wbr", "br", "link", "img"}


class Reader(HTMLParser):
    """Checks that tags are balanced and collects rows, texts and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] not in ("script", "style"):
            self.text += data

    def rows(self):
        return [attributes["data-k"] for tag, attributes in self.tags if "data-k" in attributes]


def report(results, **changes):
    return "".join(html_chunks(View(run_of(results, **changes), results)))


@pytest.mark.parametrize("make", [green_results, mixed_results, library_results, crashed_results, one_of_each, list])
def test_it_is_well_formed_and_holds_every_cell(make) -> None:
    results = make()
    reader = Reader(report(results))
    assert len(reader.rows()) == len(results)
    for result in results:
        assert result.id in reader.text


def test_it_needs_nothing_from_elsewhere() -> None:
    reader = Reader(report(mixed_results()))
    assert {tag for tag, _ in reader.tags} & {"link", "img", "iframe", "object", "base"} == set()
    for _, attributes in reader.tags:
        assert not {"src", "href", "srcset", "action"} & set(attributes)
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttp", report(mixed_results()))


def test_a_script_in_a_message_is_text() -> None:
    nasty = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 * 8131 }}"
    result = dataclasses.replace(passed(ci_axes()[0]), id=nasty, arch=nasty, notes=(nasty,))
    result = dataclasses.replace(result, axes={**result.axes, "recipe": nasty, "data": nasty})
    finding = Finding(nasty, nasty, nasty, nasty, nasty)
    attempts = (Attempt(Verdict.INFRA, nasty), Attempt(Verdict.FAIL, nasty))
    other = passed(ci_axes()[1])
    results = [red(result, finding, finding, detail=nasty, attempts=attempts), other]
    results.append(dataclasses.replace(result, id=nasty + "2", verdict=Verdict.SKIP, reason=nasty))
    text = report(results, name=nasty, notes=(nasty,), versions={nasty: nasty}, exit_reason=nasty, git_commit=nasty)
    assert "alert(1)</script>" not in text
    assert "<img" not in text
    assert "56917" not in text
    assert html.escape("<script>alert(1)</script>") in text
    scripts = [tag for tag, _ in Reader(text).tags if tag == "script"]
    assert len(scripts) == 2


@settings(max_examples=40, deadline=None)
@given(ANYTHING)
def test_any_text_keeps_it_well_formed_and_free_of_controls(text) -> None:
    result = dataclasses.replace(passed(ci_axes()[0]), id="cell" + text, arch=text, reason=text, notes=(text,))
    made = report([red(result, Finding(text, text, text, text, text), detail=text)], name=text)
    Reader(made)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", made)


def test_filters_name_the_axes_that_vary_and_rows_point_into_them() -> None:
    results = mixed_results()
    text = report(results)
    labels = re.findall(r'<label>(\w+)<select data-position="\d+"><option value="">all</option>(.*?)</select>', text)
    assert [name for name, _ in labels] == ["verdict", "evidence", "recipe", "fullgraph", "nesting", "backend"]
    values = [[html.unescape(v) for v in re.findall(r">([^<]+)</option>", options)] for _, options in labels]
    for result, keys in zip(results, Reader(text).rows(), strict=True):
        chosen = [options[int(key)] for options, key in zip(values, keys.split(), strict=True)]
        axes = result.axes
        fullgraph = "true" if axes["fullgraph"] else "false"
        expected = [result.verdict.value, result.evidence.value, axes["recipe"], fullgraph]
        assert chosen == [*expected, axes["nesting"], axes["backend"]]


def test_cases_and_variants_are_rows_and_a_case_is_named_once() -> None:
    text = report(library_results())
    assert "<tr><th>case</th><th>variant or target</th><th>float8_<wbr>current_<wbr>scaling</th>" in text
    assert "<tr><td>autocast_outside</td><td></td>" in text
    assert "<tr><td>checkpoint</td><td>reentrant</td>" in text
    assert '<tr><td class="again">checkpoint</td><td>nonreentrant</td>' in text
    assert "<tr><td>target</td><td>my_project.models.block:build</td>" in text
    assert "<tr><th>recipe</th><th>flat</th>" in text


def test_a_filter_names_the_lack_of_a_variant() -> None:
    text = report(library_results())
    assert re.search(
        r'<label>variant<select[^>]*><option value="">all</option><option value="0">\(none\)</option>', text
    )


def test_reds_have_cause_predicate_site_repro_stack_and_members() -> None:
    text = Reader(report(mixed_results())).text
    assert "Red: 20 cells (1 in quarantine), 6 causes" in text
    assert "recipe=float8_block_scaling and backend=inductor" in text
    assert "cases/toy_linear.py:58" in text
    assert "python runner.py --matrix configs/ci.yaml --cell 'toy_linear[" in text
    assert STACK.splitlines()[-1] in text
    assert "all 10 cells" in text
    assert "all 2 findings of this cell" in text


def test_evidence_requirement_and_exit_code_are_on_top() -> None:
    text = Reader(report(green_results(), require="native")).text
    assert "Exit code 1: the required evidence was not reached" in text
    assert "mxfp8_block_scaling on reference: passed no cell native, only emulated" in text
    assert 'class="end ok"' in report(green_results())
    assert 'class="end ok"' not in report(mixed_results())


def test_nothing_executed_is_said_even_where_tracing_was_enough() -> None:
    traced = [passed(dataclasses.replace(ci_axes()[10], arch="sm100"))]
    text = Reader(report(traced, require="traced")).text
    assert "Nothing was executed" in text
    assert "B200 (sm100) has never been run natively here" in text
    assert "Nothing was executed" not in report(green_results())


def test_counts_take_the_place_of_too_many_marks() -> None:
    text = report(many_results(6000, lambda i, r: red(r, BYTES) if i == 12 else r))
    assert re.search(r'<span class="m fail count">1F </span><span class="m native count">\d+\. </span>', text)


def test_quarantine_skips_expected_failures_and_retries_are_shown() -> None:
    text = Reader(report(mixed_results())).text
    for words in ("In quarantine, not gating: 1.", "Expected failures: 2", "Skipped: 2", "Retried: 1", "known (#12)"):
        assert words in text
