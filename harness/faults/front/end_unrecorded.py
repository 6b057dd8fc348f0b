"""A process drops a result and goes on to its next cell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.front import FrontFault
from harness.faults.front.patches import is_the_red
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.run.cell_process import CellProcess

    honest = CellProcess._write

    def write(self: CellProcess, record_type: str, **data: Any) -> None:
        if record_type != "end" or not is_the_red(data["result"]):
            honest(self, record_type, **data)

    with patched(CellProcess, "_write", write):
        yield


FAULT = FrontFault(
    name="end_unrecorded",
    breaks="the red cell's process does not write its result down",
    caught_by="run.recorded",
    apply=_apply,
)
