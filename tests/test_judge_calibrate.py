"""harness.judge.calibrate: the known-good provider against every bound, and an exit status that can be one."""

from __future__ import annotations

import pytest

from harness.judge import calibrate
from harness.judge.numerics import NumericsVerdict
from harness.types import Finding


def test_the_reference_passes_and_the_table_shows_value_over_bound(capsys: pytest.CaptureFixture[str]) -> None:
    status = calibrate.main(["--seeds", "1", "--nesting", "nested", "--data", "heavy_tailed"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "6 cells, 0 findings" in printed
    rows = [line.split() for line in printed.splitlines() if " numerics." in line]
    assert {row[1] for row in rows} >= {"numerics.kernel", "numerics.program", "numerics.alpha"}
    assert len({row[0] for row in rows}) == 6
    assert all(float(row[2]) < 0.5 for row in rows), printed


def test_a_finding_is_printed_and_sets_the_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    red = NumericsVerdict((Finding("numerics.codes", "a", "b"),), checks=("numerics.codes",))
    monkeypatch.setattr(calibrate, "judge_numerics", lambda obs, axes: red)
    arguments = ["--seeds", "1", "--nesting", "flat", "--data", "normal", "--recipe", "float8_current_scaling"]
    assert calibrate.main(arguments) == 1
    assert "RED float8_current_scaling flat normal seed 0: numerics.codes: expected a, got b" in capsys.readouterr().out


def test_unknown_names_are_usage_errors() -> None:
    with pytest.raises(SystemExit):
        calibrate.main(["--recipe", "int8"])
