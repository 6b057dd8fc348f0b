"""The harness: the tap hears nothing of the compiled run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe import executed
    from harness.observe.run import run_steps as honest

    def run_steps(program: Any, batches: Any, records: Any, forward: Any, enter: Any, phases: Any, make: Any) -> Any:
        seen = honest(program, batches, records, forward, enter, phases, make)
        return replace(seen, records=(), steps_of_records=()) if phases == ("compile", "run") else seen

    with patched(executed, "run_steps", run_steps):
        yield provider


FAULT = Fault(
    name="observed_no_products",
    breaks="the records of the compiled run are lost",
    caught_by="fp8.recipe_seen",
    apply=_apply,
)
