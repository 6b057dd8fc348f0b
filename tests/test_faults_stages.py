"""Whoever records a cell is told how far its fault has come, and nobody else."""

from __future__ import annotations

import pytest

from harness.faults.stages import APPLIED, JUDGED, reached, told_to


def test_stages_are_told_inside_only() -> None:
    told: list[str] = []
    reached(APPLIED)
    with told_to(told.append):
        reached(JUDGED)
    with pytest.raises(ZeroDivisionError), told_to(told.append):
        raise ZeroDivisionError
    reached(APPLIED)
    assert told == [JUDGED]
