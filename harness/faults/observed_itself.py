"""The harness: the compiled run's results are the eager run's own, so that they agree with themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe import executed
    from harness.observe.run import run_steps as honest

    kept: list[Any] = []

    def run_steps(*args: Any) -> Any:
        kept.append(honest(*args))
        return kept[0 if args[5] == ("compile", "run") else -1]

    with patched(executed, "run_steps", run_steps):
        yield provider


FAULT = Fault(
    name="observed_itself",
    breaks="eager results are compared with themselves, whatever was compiled",
    caught_by="numerics.storage",
    apply=_apply,
)
