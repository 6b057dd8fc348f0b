"""``--last-failed``: which cells of a matrix were red when they last ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.cli.errors import UsageError
from harness.cli.option import Settings
from harness.plan import Plan
from harness.report import RunInfo, StoreError, read_results, read_run
from harness.run.run_dir import DEFAULT_ROOT


def last_failed(plan: Plan, settings: Settings) -> frozenset[str] | None:
    """Ids of the cells that were red when they last ran; None when --last-failed was not asked for.

    Runs are read from the latest backwards, as far as the last one of the whole plan: a run of one cell doesn't make
    the others forgotten. Cells that were to run and didn't are red; what -x left out keeps its earlier verdict.

    Raises:
        UsageError: the matrix has no earlier run here, or its results can't be read.
    """
    if not settings["last_failed"]:
        return None
    red: dict[str, bool] = {}
    try:
        runs = sorted(_runs_of(plan.path, settings["report_dir"]), key=lambda pair: pair[0].started, reverse=True)
        for run, directory in runs:
            for result in read_results(directory):
                if result.attempts or result.verdict.is_red:
                    red.setdefault(result.id, result.verdict.is_red)
            if run.selected == run.planned:
                break
    except StoreError as error:
        raise UsageError(f"--last-failed: {error}") from error
    if not runs:
        raise UsageError(f"--last-failed: no earlier run of {plan.path} under {DEFAULT_ROOT}/")
    return frozenset(cell_id for cell_id, is_red in red.items() if is_red)


def _runs_of(matrix: str, report_dir: str | None) -> Iterator[tuple[RunInfo, Path]]:
    """Every finished run of the matrix and its directory."""
    paths = list(Path(DEFAULT_ROOT).glob("*/run.json"))
    if report_dir:
        paths += Path(report_dir).glob("run.json")
    for path in paths:
        if path.parent.is_symlink():
            continue
        run = read_run(path.parent)
        if Path(run.matrix).resolve() == Path(matrix).resolve():
            yield run, path.parent
