"""The harness: the profiler looks away while the step runs."""

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
    from harness.observe.evidence import profile_step as honest

    def profile_step(step: Any, **options: Any) -> Any:
        step()
        return honest(lambda: None, **options)

    with patched(executed, "profile_step", profile_step):
        yield provider


FAULT = Fault(
    name="profiler_silent",
    breaks="every list of kernels is empty",
    caught_by="fp8.gemms",
    apply=_apply,
)
