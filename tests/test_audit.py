"""The audit on a run that is as it should be, and on the same run with one thing wrong on the disk."""

from __future__ import annotations

import ast
import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness.audit
from harness.audit import AuditReport, audit
from harness.run import run_dir
from harness.run.finish import Finished, finish
from harness.run.journal import JournalWriter
from harness.types import Attempt, CellResult, Evidence, Expectation, Finding, Verdict, Waiver
from tests.support.cells import cell, plan, recorded, result

Lines = list[dict[str, Any]]


def waived(kind: str = "xfail", **changes: Any) -> Expectation:
    given = {"expires": "2999-01-01", "where": "m.yaml:9:3", "when": (("seed", ("2",)),), **changes}
    return Expectation(waivers=(Waiver(kind, "known", "", "me", **given),))


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run: passed, red, expected to fail, and red in quarantine."""
    return store(tmp_path, monkeypatch).directory


def store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: Expectation | None = None, verdict: Verdict = Verdict.XFAIL
) -> Finished:
    monkeypatch.chdir(tmp_path)
    run = run_dir.create("r1", None)
    cells = (
        cell(0),
        cell(1),
        cell(2, expect=expect or waived()),
        cell(3, expect=waived("quarantine", when=(("seed", ("3",)),))),
    )
    made = plan(4, cells=cells, started=datetime.datetime.now().astimezone().isoformat())
    writer = JournalWriter(run.journal, "gw0", 1)
    writer.write("host", host={"arch": "cpu", "versions": {"torch": "2.13.0+cpu"}}, run=made.run_id)
    writer.close()
    failed = (Finding("fake.check", "what was asked", "fail"),)
    results = (
        result(cells[0]),
        result(cells[1], Verdict.FAIL),
        result(cells[2], verdict, findings=failed),
        result(cells[3], Verdict.FAIL, gates=False),
    )
    return finish(run, made, recorded(run, made, results), rounds=1)


def names(directory: Path) -> set[str]:
    return {finding.check for finding in audit(directory).findings}


def edit(path: Path, change: Callable[[Lines], Lines]) -> None:
    """Change a JSON-lines file line by line."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def edit_object(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def journal(directory: Path) -> Path:
    return next((directory / "process" / "journal").glob("*.jsonl"))


def test_a_run_that_is_as_it_should_be(stored: Path) -> None:
    assert audit(stored) == AuditReport(4)
    run = json.loads((stored / "run.json").read_text())
    assert (run["exit_code"], run["audit"]) == (1, {"cells": 4, "findings": []})


def passed(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "verdict": "pass", "findings": [], "reason": "", "signature": ""}


IN_RESULTS: dict[str, tuple[Callable[[Lines], Lines], set[str]]] = {
    "a line is gone": (lambda s: [s[0], *s[2:]], {"audit.lost", "audit.counts", "audit.exit_code"}),
    "a line twice": (lambda s: [*s, s[0]], {"audit.twice", "audit.counts"}),
    "a foreign line": (lambda s: [*s, {**s[0], "id": "x"}], {"audit.unplanned", "audit.counts"}),
    "another cell's axes": (lambda s: [s[0], {**s[1], "axes": s[0]["axes"]}, *s[2:]], {"audit.unplanned"}),
    "passed with findings": (lambda s: [{**s[0], "findings": s[1]["findings"]}, *s[1:]], {"audit.verdict"}),
    "failed without": (lambda s: [s[0], {**s[1], "findings": []}, *s[2:]], {"audit.verdict"}),
    "passed unchecked": (lambda s: [{**s[0], "checks": []}, *s[1:]], {"audit.verdict", "audit.require"}),
    "passed, seen by nobody": (lambda s: [{**s[0], "evidence": "none"}, *s[1:]], {"audit.verdict"}),
    "an unknown verdict": (lambda s: [{**s[0], "verdict": "fine"}, *s[1:]], {"audit.verdict", "audit.counts"}),
    "edited to pass": (lambda s: [s[0], passed(s[1]), *s[2:]], {"audit.verdict", "audit.counts", "audit.exit_code"}),
    "hides an attempt": (lambda s: [{**s[0], "attempts": []}, *s[1:]], {"audit.journal"}),
    "not gating": (lambda s: [s[0], {**s[1], "gates": False}, *s[2:]], {"audit.waiver", "audit.counts"}),
    "expected to fail": (lambda s: [s[0], {**s[1], "verdict": "xfail"}, *s[2:]], {"audit.waiver", "audit.counts"}),
}


@pytest.mark.parametrize("name", IN_RESULTS)
def test_results_that_are_not_what_was_recorded(stored: Path, name: str) -> None:
    change, expected = IN_RESULTS[name]
    edit(stored / "results.jsonl", change)
    assert expected - {"audit.require"} <= names(stored)


@pytest.mark.parametrize("cut", [1, 40])
def test_a_file_that_is_cut_short(stored: Path, cut: int) -> None:
    path = stored / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert {"audit.files", "audit.lost"} <= names(stored)


@pytest.mark.parametrize("name", ["process/plan.json", "run.json", "results.jsonl", "junit.xml"])
def test_a_file_that_is_missing_or_something_else(stored: Path, name: str) -> None:
    (stored / name).write_text("[")
    assert "audit.files" in names(stored)
    (stored / name).unlink()
    assert "audit.files" in names(stored)


def test_an_empty_directory_is_not_a_clean_run(tmp_path: Path) -> None:
    assert names(tmp_path) == {"audit.files"}
    assert audit(tmp_path).cells == 0


def without_start(lines: Lines) -> Lines:
    return [line for line in lines if line.get("id") != "toy_linear[seed=0]"]


def without_end(lines: Lines) -> Lines:
    return [line for line in lines if (line.get("result") or {}).get("id") != "toy_linear[seed=0]"]


def twice(attempt: int, verdict: str = "pass") -> Callable[[Lines], Lines]:
    def change(lines: Lines) -> Lines:
        start, end = (
            line for line in lines if "toy_linear[seed=0]" in (line.get("id"), line.get("result", {}).get("id"))
        )
        again = {**end, "attempt": attempt, "result": {**end["result"], "verdict": verdict}}
        return [*lines, {**start, "attempt": attempt}, again]

    return change


IN_JOURNAL: dict[str, tuple[Callable[[Lines], Lines], set[str]]] = {
    "never started": (lambda s: without_end(without_start(s)), {"audit.journal"}),
    "no start": (without_start, {"audit.journal"}),
    "no end": (without_end, {"audit.journal"}),
    "of another run": (lambda s: [{**s[0], "run": "r0"}, *s[1:]], {"audit.journal"}),
    "another verdict": (
        lambda s: [json.loads(json.dumps(x).replace('"pass"', '"fail"')) for x in s],
        {"audit.verdict"},
    ),
    "recorded twice": (twice(1, "fail"), {"audit.twice"}),
    "retried, nobody knows why": (twice(2), {"audit.twice"}),
    "a cell that nobody planned": (lambda s: [*s, {**s[1], "id": "x"}], {"audit.unplanned"}),
}


@pytest.mark.parametrize("name", IN_JOURNAL)
def test_a_journal_that_does_not_bear_the_results_out(stored: Path, name: str) -> None:
    change, expected = IN_JOURNAL[name]
    edit(journal(stored), change)
    assert expected <= names(stored)


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("infra", "pass", False),
        ("oom", "pass", True),  # flaky, by the rule
        ("fail", "pass", True),
        ("infra", "infra", True),  # then it can't have passed
    ],
)
def test_retries_that_may_end_green(stored: Path, first: str, second: str, found: bool) -> None:
    def retried(lines: Lines) -> Lines:
        lines = twice(2, second)(lines)
        end = next(line for line in lines if (line.get("result") or {}).get("id") == "toy_linear[seed=0]")
        end["result"] = {**end["result"], "verdict": first}
        return lines

    edit(journal(stored), retried)
    edit(stored / "results.jsonl", lambda s: [{**s[0], "attempts": s[0]["attempts"] * 2}, *s[1:]])
    edit_object(stored / "run.json", lambda run: run["totals"].update(retried=1))
    assert bool(names(stored)) == found


@pytest.mark.parametrize(
    ("stack", "status", "found"),
    [
        ("", None, False),  # taken from outside, as far as anything on the disk tells
        ("", 74, False),  # its disk was full
        ("", -11, True),
        ("", 0, True),  # os._exit in the middle of a cell
        ("Fatal Python error: Segmentation fault\n\nCurrent thread", None, True),
        ("Timeout (0:02:00)!\n", 74, True),
        ("some library's own words\n", None, False),
    ],
)
def test_a_process_that_died_of_a_cell_is_not_retried(
    stored: Path, stack: str, status: int | None, found: bool
) -> None:
    path = journal(stored)
    number, worker, _ = path.stem.split("-")

    def retried(lines: Lines) -> Lines:
        first, again = without_end(lines), twice(2)(lines)[len(lines) :]
        seen = {"type": "exit", "of": worker, "round": int(number), "status": status}
        return [*first, *([] if status is None else [seen]), *again]

    edit(path, retried)
    (stored / "process" / "stacks").mkdir(exist_ok=True)
    (stored / "process" / "stacks" / f"{path.stem}.txt").write_text(stack)
    edit(stored / "results.jsonl", lambda s: [{**s[0], "attempts": s[0]["attempts"] * 2}, *s[1:]])
    edit_object(stored / "run.json", lambda run: run["totals"].update(retried=1))
    assert ("audit.twice" in names(stored)) == found


def test_a_cell_that_x_left_out_needs_its_reds(stored: Path) -> None:
    edit(journal(stored), lambda s: without_end(without_start(s)))
    left_out = {"verdict": "skip", "attempts": [], "checks": [], "evidence": "none"}
    edit(stored / "results.jsonl", lambda s: [{**s[0], **left_out}, *s[1:]])
    edit_object(stored / "process" / "plan.json", lambda made: made.update(maxfail=1))
    assert "audit.journal" not in names(stored)
    edit_object(stored / "process" / "plan.json", lambda made: made.update(maxfail=2))
    assert "audit.journal" in names(stored)


BAD_WAIVERS: dict[str, dict[str, Any]] = {
    "expired": {"expires": "2001-01-01"},
    "substring": {"when": (("provider", ("refer",)),)},
    "another seed": {"when": (("seed", ("20",)),)},
    "another arch": {"when": (("arch", ("sm90",)),)},
    "other fields": {"when": (("recipe", ("float8_current_scaling(power_2_scale=true)",)),)},
    "another torch": {"versions": (("torch", "<2.13"),)},
    "nothing installed": {"versions": (("te", ">=1"),)},
    "other checks": {"checks": ("other.check",)},
}
GOOD_WAIVERS: dict[str, dict[str, Any]] = {
    "one of several": {"when": (("seed", ("1", "2")), ("provider", ("reference",)))},
    "every kind of axis": {
        "when": (
            ("recipe", ("float8_current_scaling",)),
            ("shape", ("128x256x128",)),
            ("fullgraph", ("true",)),
            ("arch", ("cpu",)),
        )
    },
    "versions": {"versions": (("torch", ">=2.13"),)},
    "its check": {"checks": ("fake.check",)},
}


@pytest.mark.parametrize("name", BAD_WAIVERS)
def test_a_waiver_that_does_not_hold_forgives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    finished = store(tmp_path, monkeypatch, waived(**BAD_WAIVERS[name]))
    assert names(finished.directory) == {"audit.waiver"}
    assert (finished.info.exit_code, "audit.waiver" in finished.info.exit_reason) == (3, True)


@pytest.mark.parametrize("name", GOOD_WAIVERS)
def test_a_waiver_that_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert names(store(tmp_path, monkeypatch, waived(**GOOD_WAIVERS[name])).directory) == set()


def test_a_quarantine_is_no_expected_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(store(tmp_path, monkeypatch, waived("quarantine")).directory) == {"audit.waiver"}


def test_each_field_of_the_totals(stored: Path) -> None:
    for change in (
        lambda run: run["totals"]["by_verdict"].update(**{"pass": 2}),
        lambda run: run["totals"].update(gating_reds=0),
        lambda run: run["totals"].update(quarantined_reds=0),
        lambda run: run["totals"].update(retried=1),
        lambda run: run.update(selected=3),
        lambda run: run.update(run_id="r0"),
    ):
        before = (stored / "run.json").read_text()
        edit_object(stored / "run.json", change)
        assert names(stored) == {"audit.counts"}
        (stored / "run.json").write_text(before)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"exit_code": 0}, {"audit.exit_code"}),
        ({"exit_code": 2}, set()),  # no claim that all is well
        ({"require": "traced"}, {"audit.require"}),
    ],
)
def test_the_exit_code(stored: Path, change: dict[str, Any], expected: set[str]) -> None:
    edit_object(stored / "run.json", lambda run: run.update(change))
    assert names(stored) == expected


def one(verdict: str = "pass", evidence: str = "native", **changes: Any) -> dict[str, Any]:
    usual = {"id": "c", "provider": "p", "axes": {"recipe": "r"}, "checks": ["numerics.codes"], "gates": True}
    return {**usual, "verdict": verdict, "evidence": evidence, **changes}


REFUSED = ["error.refusal"]


@pytest.mark.parametrize(
    ("require", "results", "met"),
    [
        ("native", [one()], True),
        ("native", [one(evidence="emulated")], False),
        ("emulated", [one(), one("skip", "none", axes={"recipe": "q"})], False),
        ("emulated", [one(), one("skip", "none")], True),
        ("emulated", [one(checks=["numerics.finite"])], False),
        ("emulated", [one(evidence="traced")], False),
        ("traced", [one(evidence="traced", checks=[])], True),
        ("emulated", [one(), one(axes={"recipe": "d"}, checks=REFUSED)], True),
        ("emulated", [one(checks=REFUSED)], False),
        ("emulated", [one(), one(evidence="negative", axes={"recipe": "n"})], True),
        ("emulated", [one(), one("fail", axes={"recipe": "n"}, gates=False)], True),
        ("emulated", [one("fail", gates=False)], False),
        ("traced", [one("fail", gates=False)], False),
        ("emulated", [one(), one("xfail", axes={"recipe": "x"})], False),
        ("emulated", [one(evidence="rehearsed")], False),
        ("traced", [one(evidence="rehearsed")], True),
        ("emulated", [one(), one(evidence="rehearsed", provider="p(rehearse=true)")], True),
        ("emulated", [one(), one(evidence="rehearsed", axes={"recipe": "other"})], False),
    ],
)
def test_the_evidence_is_what_the_report_demands_too(require: str, results: Lines, met: bool) -> None:
    """The audit's own rule beside that of harness/report/require.py, on the same results."""
    from harness.audit.whole import missing_evidence
    from harness.report import require_findings

    typed = [
        CellResult(
            id=item["id"],
            axes=item["axes"],
            arch="cpu",
            provider=item["provider"],
            case="c",
            verdict=Verdict(item["verdict"]),
            reason="",
            signature="",
            evidence=Evidence(item["evidence"]),
            checks=tuple(item["checks"]),
            gates=item["gates"],
            attempts=(Attempt(Verdict.PASS, ""),),
        )
        for item in results
    ]
    assert (missing_evidence(require, results) == [], require_findings(require, typed) == []) == (met, met)


def test_junit_xml_says_what_the_results_say(stored: Path) -> None:
    path = stored / "junit.xml"
    text = path.read_text()
    for broken in (
        text.replace("<failure", "<skipped").replace("</failure", "</skipped"),
        text.replace('name="toy_linear[seed=0]"', 'name="toy_linear[seed=9]"'),
        text.replace("<testcase", "<gone", 1).replace("</testcase", "</gone", 1),
    ):
        assert broken != text
        path.write_text(broken)
        assert "audit.counts" in names(stored)


def test_a_finding_stands_in_every_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = store(tmp_path, monkeypatch, waived(expires="2001-01-01")).directory
    for name in ("run.json", "report.html", "summary.md", "comment.md", "junit.xml"):
        assert "audit.waiver" in (directory / name).read_text(), name
    assert json.loads((directory / "run.json").read_text())["blame"] == "run"


def test_it_shares_no_code_with_what_it_audits() -> None:
    allowed = {*sys.stdlib_module_names, "packaging"}
    for path in Path(harness.audit.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                assert module.partition(".")[0] in allowed or module.startswith("harness.audit"), (path.name, module)
