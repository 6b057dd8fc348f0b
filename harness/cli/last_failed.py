"""``--last-failed``: what was red when this matrix was last run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.cli.errors import UsageError
from harness.cli.option import Settings
from harness.plan import Plan
from harness.report import StoreError, read_results, read_run
from harness.run.run_dir import DEFAULT_ROOT


def last_failed(plan: Plan, settings: Settings) -> frozenset[str] | None:
    """Ids of the red cells of the latest run of this matrix; None when --last-failed was not asked for.

    Cells that never ran count: they have no result that one could rely on.

    Raises:
        UsageError: the matrix has no earlier run here, or its results can't be read.
    """
    if not settings["last_failed"]:
        return None
    try:
        latest = max(_runs_of(plan.path, settings["report_dir"]), default=None)
        if latest is None:
            raise UsageError(f"--last-failed: no earlier run of {plan.path} under {DEFAULT_ROOT}/")
        return frozenset(result.id for result in read_results(latest[1]) if result.verdict.is_red)
    except StoreError as error:
        raise UsageError(f"--last-failed: {error}") from error


def _runs_of(matrix: str, report_dir: str | None) -> Iterator[tuple[str, Path]]:
    """(start, directory) of every finished run of the matrix."""
    paths = list(Path(DEFAULT_ROOT).glob("*/run.json"))
    if report_dir:
        paths += Path(report_dir).glob("run.json")
    for path in paths:
        if path.parent.is_symlink():
            continue
        run = read_run(path.parent)
        if Path(run.matrix).resolve() == Path(matrix).resolve():
            yield run.started, path.parent
