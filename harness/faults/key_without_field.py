"""The key of a recipe leaves a field out, so two recipes that differ in it are one to every graph and operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import Float8CurrentScaling

    complete = Float8CurrentScaling.__post_init__

    def incomplete(self: Any) -> None:
        complete(self)
        object.__setattr__(self, "key", self.key.partition(",power_2_scale=")[0] + ")")

    with patched(Float8CurrentScaling, "__post_init__", incomplete):
        yield provider


FAULT = Fault(
    name="key_without_field",
    breaks="two recipes that differ in one field share a key",
    caught_by="case.facts",
    apply=_apply,
    report="vllm-project/vllm#53366",
    where={"case": "recipe_switch", "variant": "held"},
)
