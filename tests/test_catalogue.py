"""docs/cases.md is what the code says, and lists every case, fault and check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cases import CASES
from harness import catalogue
from harness.faults import FAULTS
from harness.faults.fault import Fault
from harness.judge.numerics import CHECKS as NUMERIC_CHECKS
from harness.judge.verdict import CHECKS
from harness.registry import load
from harness.types import RECIPES, CaseEntry

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cases.md"
TABLES = catalogue.tables()


def firsts(heading: str, column: int = 0) -> list[str]:
    """The names in one column of the table under a heading, without what marks them up."""
    body = TABLES.split(f"## {heading}\n\n", 1)[1].split("\n\n", 1)[0]
    return [row.split(" | ")[column].strip("| ").split("`")[1] for row in body.splitlines()[2:] if "`" in row]


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalogue.main(["--check", str(PAGE)]) == 0, capsys.readouterr().err


def test_what_is_written_by_hand_is_kept_and_a_stale_page_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "cases.md"
    page.write_text("# Mine\n\n<!-- catalogue: tables -->\nout of date\n<!-- end of catalogue: tables -->\n\nAfter.\n")
    assert catalogue.main(["--check", str(page)]) == catalogue.NOT_CURRENT
    assert f"--write {page}" in capsys.readouterr().err
    assert catalogue.main(["--write", str(page)]) == 0
    assert catalogue.main(["--check", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("\n\nAfter.\n")
    assert TABLES in text
    assert "out of date" not in text


@pytest.mark.parametrize("arguments", [["--check", "nowhere.md"], ["--write"], ["--check", "a", "--write", "b"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert catalogue.main(arguments) == catalogue.USAGE_ERROR
    assert capsys.readouterr().err


def test_every_case_fault_and_check_has_a_row() -> None:
    assert firsts("Cases") == list(CASES)
    assert set(firsts("Faults")) == set(CASES)
    assert sorted(row.split("`")[3] for row in TABLES.splitlines() if _is_fault(row)) == sorted(FAULTS)
    assert firsts("Checks") == list(catalogue.checks())


def _is_fault(row: str) -> bool:
    names = row.split("`")
    return len(names) > 4 and names[1] in CASES and names[2] == " | " and names[3] in FAULTS


def test_every_check_of_the_judge_is_known() -> None:
    """By what its findings are called in the source, so that a check outside of the registries is seen."""
    named: set[str] = set()
    for file in sorted((ROOT / "harness" / "judge").glob("*.py")):
        named |= finding_names(file.read_text())
    assert {check.name for check in CHECKS} | set(NUMERIC_CHECKS) <= named | set(catalogue.checks())
    judged = {name for name in named if not name.startswith("waiver.")}  # a waiver's own reds are no check
    assert len(judged) > 20
    assert judged <= set(catalogue.checks())


def finding_names(source: str) -> set[str]:
    """The constant names that a module gives to the findings it makes."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    makers = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in ("Finding", "one")]
    given = [
        value for call in makers for value in (*call.args[:1], *(k.value for k in call.keywords if k.arg == "check"))
    ]
    return {str(node.value) for node in given if isinstance(node, ast.Constant)}


def test_names_of_findings_are_found_in_source() -> None:
    assert finding_names('one("a.b", 1, 2)\nFinding(check="c.d")\nother("e.f")\none(name, 1)') == {"a.b", "c.d"}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_names_a_check_and_a_case_that_exist(name: str) -> None:
    fault: Fault = load(FAULTS[name])
    assert fault.caught_by in catalogue.checks()
    assert catalogue.case_of(fault) in CASES
    assert not fault.report or "#" in fault.report


def test_a_check_that_no_fault_names_is_visible() -> None:
    naming = {load(path).caught_by for path in FAULTS.values()}
    rows = [row for row in TABLES.split("## Checks\n\n")[1].splitlines()[2:] if row.startswith("| `")]
    assert {row.split("`")[1] for row in rows if row.endswith("| – |")} == set(catalogue.checks()) - naming


def test_links_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text())
    assert len(targets) > len(CASES)
    assert [target for target in targets if not (PAGE.parent / target).is_file()] == []


def test_words_for_a_registration() -> None:
    assert catalogue.recipes_of(CaseEntry("m:C")) == "all"
    without = tuple(name for name in RECIPES if name != "delayed_scaling")
    assert catalogue.recipes_of(CaseEntry("m:C", recipes=without)) == "all but `delayed_scaling`"
    assert catalogue.recipes_of(CaseEntry("m:C", recipes=("delayed_scaling",))) == "`delayed_scaling`"


def test_words_for_the_cell_of_a_fault() -> None:
    where = {"case": "stack", "recipe": {"name": "mxfp8_block_scaling", "scale_rounding": "floor"}, "fullgraph": False}
    fault = Fault("name", "breaks", "fp8.gemms", lambda provider: None, where=where)  # type: ignore[arg-type,return-value]
    assert catalogue.where_of(fault) == "`recipe=mxfp8_block_scaling(scale_rounding=floor)`, `fullgraph=false`"
    assert catalogue.first_paragraph("One\ntwo.\n\nThree.\n") == "One two."
