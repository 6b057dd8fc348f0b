"""What a baseline says of a run reaches every format, and is read back from run.json."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.report import RunInfo, exit_code, read_run, write_reports
from harness.report.baseline import BaselineFinding, BaselineReport
from harness.report.commands import next_command
from harness.report.junit import junit_chunks
from harness.report.markdown import comment_markdown, summary_markdown
from harness.report.terminal import summary_page
from harness.report.view import View
from tests.support.report_fakes import green_results, mixed_results, run_of

FEWER = BaselineFinding("baseline.fp8_gemms", "at least 6", "3", ("toy_linear[a]", "toy_linear[b]"), "b.json:12")
GONE = BaselineFinding("baseline.gone", "a cell of the plan", "no such cell", ("toy_linear[c]",), "b.json:14")
LESS = BaselineFinding("baseline.graph_breaks", "at most 2", "0", ("toy_linear[d]",), "b.json:13")
HELD = BaselineReport(
    "b.json", "cpu, torch 2.11.0", ("torch 2.11.0 -> 2.13.0",), 70, better=(LESS,), notes=("1 cell not in it: x",)
)
WORSE = dataclasses.replace(HELD, findings=(FEWER, GONE))


def of(baseline: BaselineReport | None) -> RunInfo:
    results = green_results()
    code, reason = exit_code(results, [], baseline=baseline)
    return run_of(results, baseline=baseline, exit_code=code, exit_reason=reason)


def text_of(run: RunInfo) -> str:
    return "\n".join(line.plain for line in summary_page(View(run, green_results()), 200).lines)


def test_the_exit_code_says_what_it_rests_on() -> None:
    assert exit_code(green_results(), [], baseline=None) == (0, "all as expected")
    assert exit_code(green_results(), [], baseline=HELD) == (0, "all as expected")
    assert exit_code(green_results(), [], baseline=WORSE) == (1, "worse than the baseline")
    assert exit_code(mixed_results(), ["x"], baseline=WORSE)[1].endswith("; worse than the baseline")
    assert exit_code(green_results(), [], baseline=WORSE, interrupted=True)[0] == 2


def test_the_terminal_tells_it() -> None:
    text = text_of(of(WORSE))
    assert "\nbaseline b.json: NOT held, 70 of 70 cells compared\n" in text
    assert "  baseline.fp8_gemms: expected at least 6 (b.json:12), got 3: toy_linear[a], toy_linear[b]\n" in text
    assert "  measured on cpu, torch 2.11.0\n  now torch 2.11.0 -> 2.13.0\n" in text
    assert "  better: baseline.graph_breaks: expected at most 2 (b.json:13), got 0: toy_linear[d]\n" in text
    assert "  note: 1 cell not in it: x\n" in text
    assert "exit code 1: worse than the baseline" in text
    assert "\nbaseline b.json: held, 70 of 70 cells compared\n" in text_of(of(HELD))
    assert "baseline" not in text_of(of(None))


def test_many_findings_are_counted() -> None:
    many = tuple(dataclasses.replace(FEWER, got=str(number)) for number in range(30))
    run = of(dataclasses.replace(WORSE, findings=many))
    assert "  and 20 more\n" in text_of(run)
    assert "- and 10 more\n" in summary_markdown(View(run, green_results()))


@pytest.mark.parametrize("render", [summary_markdown, comment_markdown])
def test_markdown_tells_it(render) -> None:
    text = render(View(of(WORSE), green_results()))
    assert "**Worse than the baseline.** `baseline b.json: NOT held, 70 of 70 cells compared`" in text
    assert "- `baseline.gone: expected a cell of the plan (b.json:14), got no such cell: toy_linear[c]`" in text
    held = render(View(of(HELD), green_results()))
    assert "\n`baseline b.json: held, 70 of 70 cells compared`" in held
    assert "Worse" not in held
    assert "baseline" not in render(View(of(None), green_results()))


@pytest.mark.parametrize(("baseline", "failures"), [(WORSE, 1), (HELD, 0), (None, None)])
def test_junit_has_a_case_for_it(baseline: BaselineReport | None, failures: int | None) -> None:
    root = ElementTree.fromstring("".join(junit_chunks(View(of(baseline), green_results()))))
    cases = [case for case in root.iter("testcase") if case.get("name") == "baseline b.json"]
    assert [len(case.findall("failure")) for case in cases] == ([] if failures is None else [failures])
    assert root.get("failures") == str(failures or 0)


def test_it_is_stored_and_shown_in_html(tmp_path: Path) -> None:
    write_reports(tmp_path, of(WORSE), green_results())
    assert read_run(tmp_path).baseline == WORSE
    page = (tmp_path / "report.html").read_text()
    assert "baseline b.json: NOT held, 70 of 70 cells compared" in page
    assert "expected at least 6 (b.json:12), got 3" in page
    write_reports(tmp_path, of(None), green_results())
    assert read_run(tmp_path).baseline is None
    assert "baseline" not in (tmp_path / "report.html").read_text()


def test_what_to_run_next() -> None:
    words = next_command(of(WORSE), [])
    assert words == [
        *("python", "runner.py", "--matrix", "configs/ci.yaml"),
        *("--baseline", "b.json", "--cell", "toy_linear[a]", "-n", "0"),
    ]
    assert next_command(of(dataclasses.replace(WORSE, findings=(GONE,))), [])[-1] == "--plan"
    assert next_command(of(HELD), []) == []
