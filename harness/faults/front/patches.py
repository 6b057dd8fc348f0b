"""How faults of the front change it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from harness.faults.front import RED_SEED
from harness.faults.patching import patched
from harness.types import CellResult

Change = Callable[[Sequence[CellResult]], Sequence[CellResult]]


def is_the_red(cell: Any) -> bool:
    """True for the usual matrix's one cell, or its result, that is red and not forgiven."""
    axes = cell.axes
    return bool((axes["seed"] if isinstance(axes, dict) else axes.seed) == RED_SEED)


def greened(result: CellResult, **changes: Any) -> CellResult:
    """``result`` as if it had passed."""
    passed = {"verdict": type(result.verdict).PASS, "reason": "", "signature": "", "detail": "", "findings": ()}
    return dataclasses.replace(result, **{**passed, **changes})


def after_reconciling(change: Change) -> Callable[[], AbstractContextManager[None]]:
    """An ``apply`` that hands on other results than those that were reconciled."""

    @contextmanager
    def apply() -> Iterator[None]:
        from harness.run import supervise
        from harness.run.reconcile import reconcile as honest

        def reconcile(*args: Any, **options: Any) -> Any:
            state = honest(*args, **options)
            return dataclasses.replace(state, results=tuple(change(state.results)))

        with patched(supervise, "reconcile", reconcile):
            yield

    return apply


@contextmanager
def withheld() -> Iterator[None]:
    """The scheduler never hands out the red cell."""
    from harness.run.supervise import Supervisor

    honest = Supervisor._next

    def without_it(self: Supervisor, state: Any) -> Any:
        entry = honest(self, state)
        cells = self.plan.by_id
        kept = tuple(cell_id for cell_id in entry.ids if not is_the_red(cells[cell_id])) if entry else ()
        return dataclasses.replace(entry, ids=kept) if entry else None

    with patched(Supervisor, "_next", without_it):
        yield


@contextmanager
def ended_twice(attempt: int = 1) -> Iterator[None]:
    """The process that ran the red cell records it once more, as passed."""
    from harness.run.cell_process import CellProcess

    honest = CellProcess._write

    def write(self: CellProcess, record_type: str, **data: Any) -> None:
        honest(self, record_type, **data)
        if record_type == "end" and is_the_red(data["result"]):
            again = {**data, "result": greened(data["result"]), "attempt": attempt}
            honest(self, "start", id=data["result"].id, attempt=attempt)
            honest(self, record_type, **again)

    with patched(CellProcess, "_write", write):
        yield
