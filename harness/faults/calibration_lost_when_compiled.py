"""Compiled code leaves calibration out: it is neither refused nor done, and the scales stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    calibrate = ToyLinear._calibrate

    def eager_only(self: ToyLinear, x: torch.Tensor) -> None:
        if not torch.compiler.is_compiling():
            calibrate(self, x)

    with patched(ToyLinear, "_calibrate", eager_only):
        yield provider


FAULT = Fault(
    name="calibration_lost_when_compiled",
    breaks="a calibrating region in compiled code silently records nothing",
    caught_by="error.refusal",
    apply=_apply,
    where={"case": "delayed_scaling", "variant": "calibrated", "recipe": "delayed_scaling"},
)
