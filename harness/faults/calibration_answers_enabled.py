"""``is_fp8_calibration()`` answers whether FP8 is on."""

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
        enabled: bool = cls.quantization_state.fp8_enabled
        return enabled

    with patched(FP8GlobalStateManager, "is_fp8_calibration", classmethod(asked)):
        yield provider


FAULT = Fault(
    name="calibration_answers_enabled",
    breaks="whether a region calibrates is answered by whether FP8 is on",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "disabled", "variant": "inside"},
)
