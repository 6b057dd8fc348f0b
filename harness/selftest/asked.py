"""What a selftest is asked, beside its run's plan: with it the answer can be given also after the front was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.report.store import write_text_atomically
from harness.run.plan_file import RunPlan
from harness.run.run_dir import RunDir
from harness.selftest.front_outcomes import CELL
from harness.selftest.outcome import End, Outcome, outcome_of
from harness.selftest.plan import Seeded, Selftest
from harness.types import Cell, CellResult

_TEXTS = ("fault", "breaks", "caught_by", "needs", "report", "dies")
KILLED = "the selftest was killed before it had run"


def path_in(run: RunDir) -> Path:
    """Where a selftest writes what it is asked."""
    return run.process / "selftest.json"


def write_asked(run: RunDir, selftest: Selftest, lacks: Mapping[str, str]) -> None:
    """Write down every fault in every cell. ``lacks``: by cell, why this machine can't show it.

    Raises:
        OSError: the run's directory can't be written.
    """
    seeded = [
        {name: getattr(one, name) for name in _TEXTS}
        | {"cell": one.cell.id, "twin": one.twin.id, "lacks": lacks.get(one.cell.id, "")}
        for one in selftest.seeded
    ]
    front = [{name: getattr(one, name) for name in ("name", "breaks", "caught_by", "report")} for one in selftest.front]
    data = {"selftest": selftest.path, "seeded": seeded, "front": front}
    write_text_atomically(path_in(run), [json.dumps(data)])


def outcomes_after(run: RunDir, plan: RunPlan, results: Mapping[str, CellResult]) -> tuple[str, list[Outcome]]:
    """The selftest's file, and what became of each fault as far as the run's cells tell; those of the front leave
    nothing behind that could be read.

    Raises:
        OSError, ValueError: what was asked can't be read.
    """
    try:
        data = json.loads(path_in(run).read_text(encoding="utf-8"))
        outcomes = [*_of_cells(data["seeded"], plan.by_id, results)]
        for row in data["front"]:
            end = (End.NOT_RUN, KILLED)
            outcomes.append(Outcome(row["name"], row["breaks"], CELL, row["caught_by"], *end, report=row["report"]))
        return str(data["selftest"]), outcomes
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path_in(run)}: is not what a selftest was asked: {error!r}") from error


def _of_cells(
    rows: list[dict[str, Any]], cells: Mapping[str, Cell], results: Mapping[str, CellResult]
) -> Iterator[Outcome]:
    for row in rows:
        texts = {name: str(row[name]) for name in _TEXTS}
        if row["lacks"]:
            end = (End.SKIPPED, str(row["lacks"]))
            yield Outcome(
                texts["fault"], texts["breaks"], row["cell"], texts["caught_by"], *end, report=texts["report"]
            )
        else:
            yield outcome_of(Seeded(cell=cells[row["cell"]], twin=cells[row["twin"]], **texts), results)
