"""The harness: an observer raises, and its exception is swallowed."""

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
    from harness.observe.recorder import Recorder

    def profile_step(*args: Any, **options: Any) -> Any:
        raise ValueError("the profiler could not be started")

    class Forgetful(list[Any]):
        def append(self, error: Any) -> None:
            return None

    honest = Recorder.__init__

    def init(self: Recorder, *args: Any, **options: Any) -> None:
        honest(self, *args, **options)
        self.errors = Forgetful()

    with patched(executed, "profile_step", profile_step), patched(Recorder, "__init__", init):
        yield provider


FAULT = Fault(
    name="observer_swallowed",
    breaks="the profiled step ends with an exception that nobody records",
    caught_by="observe.complete",
    apply=_apply,
)
