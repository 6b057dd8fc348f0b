"""``is_fp8_enabled()`` answers whether any region is open, a disabled one included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import FP8GlobalStateManager

    def asked(cls: Any) -> bool:
        depth: int = cls.quantization_state.autocast_depth
        return depth > 0

    with patched(FP8GlobalStateManager, "is_fp8_enabled", classmethod(asked)):
        yield provider


FAULT = Fault(
    name="enabled_answers_outermost",
    breaks="FP8 is said to be on inside a disabled region",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "disabled", "variant": "inside"},
)
