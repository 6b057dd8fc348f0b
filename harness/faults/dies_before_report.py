"""The harness: the process dies after the cell was judged and before its result is recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider

STATUS = 86  # nobody else ends a process so


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.run import execute

    def die(obs: Any) -> None:
        os._exit(STATUS)

    # Called as what was judged is written into a result; the judge itself must be nobody's to edit.
    with patched(execute, "_fp8", die):
        yield provider


FAULT = Fault(
    name="dies_before_report",
    breaks="a result is measured and judged, and its process is gone before anybody learns of it",
    caught_by="run.crash",
    apply=_apply,
    dies=f"exit {STATUS}",
)
