"""harness.judge.calibrate_records: what was measured comes back as it was, also from a run that was cut off."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.judge.calibrate_records import Calibration, NotARecord, Skipped, read, write_line
from tests.support.calibrating import calibration, cell, met


def written(path: Path, one: Calibration) -> Path:
    with path.open("w", encoding="utf-8") as stream:
        write_line(stream, "run", one.header)
        for record in one.cells:
            write_line(stream, "cell", record)
    return path


def test_a_run_comes_back_whole(tmp_path: Path) -> None:
    skipped = (Skipped("transformer_engine", "every recipe", "every run", "not installed", 12),)
    cells = [cell(met(worst=math.inf), met(worst=None), findings=("a",), notes=("b",)), cell(seed=1, judged=False)]
    one = calibration(cells, skipped=skipped, planned=3)
    assert read(written(tmp_path / "a.jsonl", one)) == one
    assert read(tmp_path / "a.jsonl").judged == [cells[0]]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", calibration([cell(), cell(seed=1)]))
    path.write_text(path.read_text()[:-40])
    assert [one.seed for one in read(path).cells] == [0]


@pytest.mark.parametrize(
    "text", ["", "[]\n", "{}\n", '{"run": {}}\n', '{"cell": {}}\n{}\n', "no json", '{"run": 1}\n', 'x\n{"run": {}}\n']
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(NotARecord, match=r"a\.jsonl"):
        read(tmp_path / "a.jsonl")
