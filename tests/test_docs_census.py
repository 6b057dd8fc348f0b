"""The program in docs/census.md prints what the page says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "census.md"


def test_program_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, printed = re.findall(r"^```(?:python)?\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "step.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(tmp_path / "step.py"))
    assert capsys.readouterr().out == printed
