"""The example of docs/adding_a_case.md is a case that runs green, registered by the line that the page shows."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

import cases
from cases import CASES
from harness.plan.load import matrix_from_bytes
from harness.program import Expects, Program, Step
from harness.run.execute import execute_cell
from harness.types import CaseEntry, Verdict

PAGE = (Path(__file__).parents[1] / "docs" / "adding_a_case.md").read_text()
FILE, LINE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROSE = re.sub(r"```python\n.*?```", "", PAGE, flags=re.DOTALL)
MATRIX = b"{schema_version: 1, include: [{case: residual, recipe: float8_current_scaling}]}"


def test_the_example_runs_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "residual.py").write_text(FILE)
    monkeypatch.setattr(cases, "__path__", [*cases.__path__, str(tmp_path)])
    entries = eval(f"{{{LINE}}}", {"CaseEntry": CaseEntry})
    for name, entry in entries.items():
        monkeypatch.setitem(CASES, name, entry)  # type: ignore[arg-type]  # a mapping to everybody else
    plan = matrix_from_bytes(MATRIX, Path("m.yaml")).full
    assert [cell.axes.variant for cell in plan.cells] == ["inside", "outside"]
    for cell in plan.cells:
        result = execute_cell(cell)
        assert (result.verdict, result.findings) == (Verdict.PASS, ())
        assert {"compile.steady", "fp8.gemms", "numerics.program"} <= set(result.checks)


def test_the_example_is_whole() -> None:
    """Its name is that of the file and of the line, it has a docstring, and it fits the style of a case."""
    tree = ast.parse(FILE)
    assert ast.get_docstring(tree)
    assert 'Case(name="residual"' in FILE
    assert LINE.startswith('"residual": CaseEntry("cases.residual:CASE"')
    assert max(map(len, FILE.splitlines())) <= 120


def test_what_a_program_can_say_exists() -> None:
    fields = {field.name for owner in (Program, Expects, CaseEntry) for field in dataclasses.fields(owner)}
    for name in ("variants", "pair", "recipes", "drive", "around_backward", "update", "inputs_at", "schedule"):
        assert name in fields
        assert f"`{name}" in PAGE or f".{name}" in PAGE
    assert {"compiled_schedule", "raises", "probes"} <= fields
    assert {field.name for field in dataclasses.fields(Step)} >= {"forward", "recipes", "inputs", "unchanged", "reset"}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", PROSE))))
def test_links_exist(target: str) -> None:
    assert (Path(__file__).parents[1] / "docs" / target).exists()
