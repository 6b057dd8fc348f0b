"""A calibrating region is a disabled one and no more: the first FP8 step after it has the scales of no step at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear, delayed

    def nothing(self: ToyLinear, x: Any) -> None:
        from harness.fp8 import FP8GlobalStateManager

        delayed.refuse_under_compile(FP8GlobalStateManager.get_fp8_recipe())

    with patched(ToyLinear, "_calibrate", nothing):
        yield provider


FAULT = Fault(
    name="calibration_records_nothing",
    breaks="calibration records no amaxes",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "delayed_scaling", "variant": "calibrated", "recipe": "delayed_scaling", "backend": "eager"},
)
