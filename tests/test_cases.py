"""Every case, every variant: registered as it says, and green on the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from cases import CASES
from harness.plan.load import matrix_from_bytes
from harness.program import Case
from harness.registry import load
from harness.run.execute import execute_cell
from harness.types import Cell, Verdict

# Programs that take a recipe of their own; the others run with this one, and their every recipe in configs/l0.yaml.
USUAL = "float8_current_scaling"


def cells() -> list[Cell]:
    """One cell for each variant, on the cheapest backend that has a backward graph."""
    found: list[Cell] = []
    for name, entry in CASES.items():
        recipe = USUAL if USUAL in entry.recipes else entry.recipes[0]
        text = f"{{schema_version: 1, include: [{{case: {name}, recipe: {recipe}, backend: aot_eager}}]}}"
        if name != "target":  # the user's own: tests/test_cases_target.py
            found += matrix_from_bytes(text.encode(), Path(f"{name}.yaml")).full.cells
    return found


@pytest.mark.parametrize("name", sorted(CASES))
def test_registration(name: str) -> None:
    case: Case = load(CASES[name].path)
    assert case.name == name
    assert case.catches
    assert all("#" in report for report in case.answers)
    assert set(CASES[name].pair) <= {"", *CASES[name].variants}


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.id)
def test_green_on_the_reference(cell: Cell) -> None:
    result = execute_cell(cell)
    assert result.verdict in (Verdict.PASS, Verdict.SKIP), (result.reason, result.detail)
    assert result.findings == ()
    if result.verdict is Verdict.SKIP:
        assert result.reason
