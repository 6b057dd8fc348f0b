"""The harness: the process dies after the cell was judged and before its result is recorded."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.run import execute

    honest = vars(execute)["judge_cell"]

    def die(*args: Any, **options: Any) -> None:
        honest(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    with patched(execute, "judge_cell", die):
        yield provider


FAULT = Fault(
    name="dies_before_report",
    breaks="a result is measured and judged, and its process is gone before anybody learns of it",
    caught_by="run.crash",
    apply=_apply,
)
