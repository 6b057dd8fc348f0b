"""Every case is registered as it says. That it is green on the reference is what ``make l0`` shows."""

from __future__ import annotations

import pytest

from cases import CASES
from harness.program import Case
from harness.registry import load


@pytest.mark.parametrize("name", sorted(CASES))
def test_registration(name: str) -> None:
    case: Case = load(CASES[name].path)
    assert case.name == name
    assert case.catches
    assert all("#" in report for report in case.answers)
    assert set(CASES[name].pair) <= {"", *CASES[name].variants}
