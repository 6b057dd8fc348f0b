"""Another run's journal lies among this run's, and speaks for a cell that did not run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.front import FrontFault
from harness.faults.front.patches import greened, is_the_red, withheld
from harness.faults.patching import patched
from harness.types import axes_dict


@contextmanager
def _apply() -> Iterator[None]:
    from harness.run import supervise
    from harness.run.journal import JournalWriter, read_journal

    honest = vars(supervise)["run_round"]  # that of the selftest

    def run_round(run: Any, plan: Any, *args: Any, **options: Any) -> Any:
        end = honest(run, plan, *args, **options)
        red = next(cell for cell in plan.cells if is_the_red(cell))
        like = next(read_journal(run.journal).of_type("end")).result
        other = JournalWriter(run.journal, "gw7", 1)
        other.write("host", host={}, run="20200101-000000-0000")
        other.write("start", id=red.id, attempt=1)
        other.write("end", result=greened(like, id=red.id, axes=axes_dict(red.axes)), attempt=1)
        other.close()
        return end

    with withheld(), patched(supervise, "run_round", run_round):
        yield


FAULT = FrontFault(
    name="journal_of_another_run",
    breaks="the red cell is not run; an earlier run's journal, in which it passed, is read as this run's",
    caught_by="audit.journal",
    apply=_apply,
)
