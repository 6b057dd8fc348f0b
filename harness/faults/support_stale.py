"""Support checks read the architecture where torch.compile does not look: their first answer is baked in for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import support
    from harness.fp8.tracing import run_while_tracing

    @run_while_tracing
    def check(recipe_name: str) -> tuple[bool, str]:
        level = support.level_on(recipe_name, support.current_device())
        return level.level != support.UNSUPPORTED, level.reason

    features = {**getattr(provider, "features", {}), "support_check": check}
    with patched(provider, "features", features):
        yield provider


FAULT = Fault(
    name="support_stale",
    breaks="compiled code keeps the answer of the architecture that it was compiled on",
    caught_by="case.facts",
    apply=_apply,
    report="pytorch/pytorch#128437",
    where={"case": "support_constant"},
)
