"""configs/l0_te.yaml and its waivers, against a run of it with Transformer Engine 2.20.2 on an H200 (torch 2.11.0,
CUDA 13.0): every red of that run is an expected failure, check by check, and no pass becomes an unexpected one.

``tests/support/l0_te_h200.json`` holds the run, a cell a line: its verdict and the names of the checks that found
something. A later run's results.jsonl takes its place by::

    python -m tests.test_configs_waivers_te run/results.jsonl > new.json && mv new.json tests/support/l0_te_h200.json
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.judge.waivers import Waived, applies, apply_waivers
from harness.plan import load_matrix
from harness.types import Cell, Verdict

ROOT = Path(__file__).resolve().parents[1]
CELLS = {cell.id: cell for cell in load_matrix(ROOT / "configs" / "l0_te.yaml").full.cells}
REFERENCE = load_matrix(ROOT / "configs" / "l0.yaml").full.cells
RECORD: Mapping[str, list[str]] = json.loads((Path(__file__).parent / "support" / "l0_te_h200.json").read_text())
VERSIONS = {"torch": "2.11.0", "transformer_engine": "2.20.2", "cuda": "13.0"}
TODAY = datetime.date(2026, 12, 2)


def now(cell_id: str) -> tuple[str, ...]:
    """Verdict before waivers, and failed checks."""
    return tuple(RECORD[cell_id])


def waived(cell: Cell, outcome: tuple[str, ...]) -> Waived:
    return apply_waivers(Verdict(outcome[0]), cell.expect.waivers, "sm90", VERSIONS, TODAY, outcome[1:])


def test_the_cells_are_those_of_l0_but_for_the_rowwise_recipe() -> None:
    theirs = {cell.id.replace("provider=transformer_engine,", "") for cell in CELLS.values()}
    # What is only traced is nightly.yaml's there. With dynamic=True Dynamo of torch 2.11 fails on the library's frames.
    here = [cell for cell in REFERENCE if cell.axes.arch == "host" and not cell.axes.dynamic]
    ours = {cell.id for cell in here if cell.axes.recipe.name != "float8_rowwise_scaling"}
    assert {name.replace("provider=reference,", "") for name in ours} == theirs
    assert {cell.axes.provider.label for cell in CELLS.values()} == {"transformer_engine"}


def test_every_red_of_the_record_is_known_and_no_pass_is_waived() -> None:
    made = {name: waived(cell, now(name)) for name, cell in CELLS.items() if name in RECORD}
    assert [(name, one.notes) for name, one in made.items() if one.verdict.is_red] == []
    assert Counter(one.verdict.value for one in made.values())["xfail"] > 90
    assert {name for name, one in made.items() if one.verdict is Verdict.XFAIL} == {
        name for name in made if now(name)[0] in ("fail", "error")
    }


@pytest.mark.parametrize("name", [name for name in CELLS if name in RECORD and now(name)[0] == "fail"])
def test_a_red_that_is_mended_and_a_further_check_are_news(name: str) -> None:
    cell, outcome = CELLS[name], now(name)
    assert waived(cell, ("pass",)).verdict is Verdict.XPASS
    assert waived(cell, (*outcome, "numerics.finite")).verdict is Verdict.FAIL


def test_no_waiver_names_a_check_or_meets_a_cell_in_vain() -> None:
    seen: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {}
    for name, cell in CELLS.items():
        outcome = now(name) if name in RECORD else ("pass",)
        for waiver in (one for one in cell.expect.waivers if applies(one, "sm90", VERSIONS)):
            named[waiver.where] = set(waiver.checks)
            if outcome[0] == "fail" and set(outcome[1:]) <= set(waiver.checks):
                seen.setdefault(waiver.where, set()).update(outcome[1:])
                break
    assert seen == named


def record_of(lines: list[str]) -> str:
    """The text of the record, from the lines of a results.jsonl."""
    cells = [json.loads(line) for line in lines]
    told = {
        cell["id"]: [_before_waivers(cell), *sorted({each["check"] for each in cell["findings"]})] for cell in cells
    }
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(of)}" for name, of in told.items()) + "\n}\n"


def _before_waivers(cell: Mapping[str, Any]) -> str:
    return "fail" if cell["verdict"] == "xfail" else str(cell["verdict"])


def test_a_record_is_what_results_say_before_waivers() -> None:
    line = json.dumps({"id": "a[b=c]", "verdict": "fail", "findings": [{"check": "x.y"}, {"check": "x.a"}]})
    for written in (line, line.replace('"fail"', '"xfail"')):
        assert json.loads(record_of([written])) == {"a[b=c]": ["fail", "x.a", "x.y"]}


if __name__ == "__main__":
    sys.stdout.write(record_of(Path(sys.argv[1]).read_text().splitlines()))
