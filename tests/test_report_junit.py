import dataclasses
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.report.junit import MAX_TEXT, junit_chunks
from harness.report.view import View
from harness.types import Finding, Verdict
from tests.support.report_fakes import (
    BYTES,
    ci_axes,
    crashed_results,
    green_results,
    mixed_results,
    one_of_each,
    passed,
    red,
    run_of,
)

ANYTHING = st.text(st.characters(categories=["L", "N", "P", "S", "Z", "C"]), max_size=60)


def parsed(results, **changes):
    return ElementTree.fromstring("".join(junit_chunks(View(run_of(results, **changes), results))).encode("utf-8"))


def cells(root):
    return root.find("testsuite[@name='ci']").findall("testcase")


def run_cases(root):
    return {case.get("name"): case for case in root.find("testsuite[@name='ci.run']")}


def outcome(case):
    return next((child.tag for child in case if child.tag != "properties"), "")


@pytest.mark.parametrize("make", [green_results, mixed_results, crashed_results, one_of_each, list])
def test_counts_agree_with_content(make) -> None:
    root = parsed(make())
    for suite in root:
        found = Counter(outcome(case) for case in suite)
        assert int(suite.get("tests")) == sum(found.values())
        assert int(suite.get("failures")) == found["failure"]
        assert int(suite.get("errors")) == found["error"]
        assert int(suite.get("skipped")) == found["skipped"]
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(name)) == sum(int(suite.get(name)) for suite in root)
    assert len(cells(root)) == len(make())


def test_names_are_exact_ids_in_plan_order() -> None:
    assert [case.get("name") for case in cells(parsed(mixed_results()))] == [r.id for r in mixed_results()]
    assert {case.get("classname") for case in cells(parsed(mixed_results()))} == {"ci.toy_linear"}


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict.PASS, ""),
        (Verdict.FAIL, "failure"),
        (Verdict.XPASS, "failure"),
        (Verdict.FLAKY, "failure"),
        (Verdict.ERROR, "error"),
        (Verdict.TIMEOUT, "error"),
        (Verdict.CRASH, "error"),
        (Verdict.OOM, "error"),
        (Verdict.INFRA, "error"),
        (Verdict.XFAIL, "skipped"),
        (Verdict.SKIP, "skipped"),
    ],
)
def test_failure_is_not_error(verdict, expected) -> None:
    result = passed(ci_axes()[0])
    result = result if verdict is Verdict.PASS else red(result, BYTES, verdict=verdict)
    assert outcome(cells(parsed([result]))[0]) == expected


def test_a_quarantined_red_does_not_gate_here_either_and_says_what_it_is() -> None:
    case = cells(parsed([red(passed(ci_axes()[0]), BYTES, gates=False)]))[0]
    assert outcome(case) == "skipped"
    assert case.find("skipped").get("type") == "quarantined.fail"
    assert "numerics.codes" in case.find("skipped").get("message")


def test_properties_and_message() -> None:
    case = cells(parsed([red(passed(ci_axes()[3]), BYTES, detail="a stack")]))[0]
    properties = {p.get("name"): p.get("value") for p in case.find("properties")}
    assert (properties["evidence"], properties["arch"], properties["seed"]) == ("native", "cpu", "0")
    assert properties["signature"].startswith("numerics.codes | ")
    failure = case.find("failure")
    assert failure.get("type") == "numerics.codes"
    assert failure.get("message") == str(BYTES)
    assert "a stack" in failure.text


def test_control_characters_are_shown_and_the_file_stays_xml() -> None:
    nasty = "\x00\x1b[31m\x08 ]]> & <tag> \ud800 \ufffe \u2028"
    case = cells(parsed([red(passed(ci_axes()[0]), Finding("c", nasty, nasty), detail=nasty)]))[0]
    message = case.find("failure").get("message")
    assert "\\x1b[31m" in message
    assert "\\ud800" in message
    assert "]]> & <tag>" in message


@settings(max_examples=80, deadline=None)
@given(text=ANYTHING)
def test_any_text_gives_valid_xml(text) -> None:
    result = dataclasses.replace(passed(ci_axes()[0]), id="cell" + text, arch=text, notes=(text,))
    root = parsed([red(result, Finding(text, text, text, text, text), detail=text)], name="ci", started=text)
    assert len(cells(root)) == 1


def test_a_long_stack_is_cut() -> None:
    case = cells(parsed([red(passed(ci_axes()[0]), BYTES, detail="x" * 10 * MAX_TEXT)]))[0]
    assert len(case.find("failure").text) <= MAX_TEXT


def test_unmet_evidence_fails_a_case_of_its_own() -> None:
    assert outcome(run_cases(parsed(green_results()))["require emulated"]) == ""
    case = run_cases(parsed(green_results(), require="native"))["require native"]
    assert outcome(case) == "failure"
    assert "mxfp8_block_scaling on reference" in case.find("failure").text


@pytest.mark.parametrize(("code", "expected"), [(0, ""), (1, ""), (2, "error"), (3, "error"), (5, "error")])
def test_a_run_that_did_not_end_well_has_a_red_case(code, expected) -> None:
    assert outcome(run_cases(parsed(green_results(), exit_code=code, exit_reason=""))["complete"]) == expected


def test_the_head_names_the_format() -> None:
    text = "".join(junit_chunks(View(run_of([]), [])))
    assert text.startswith('<?xml version="1.0" encoding="utf-8"?>\n<!-- Common JUnit XML format, https://')
