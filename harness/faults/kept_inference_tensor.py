"""A layer makes a tensor at its first call and keeps it; made under inference_mode, training can't use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.linear import ToyLinear

    run = ToyLinear.forward

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        if "kept" not in self.__dict__:
            self.__dict__["kept"] = x.new_ones(x.shape[-1])
        return run(self, x * self.__dict__["kept"])

    with patched(ToyLinear, "forward", forward):
        yield provider


FAULT = Fault(
    name="kept_inference_tensor",
    breaks="a tensor that a first call under inference_mode made is saved for a later backward",
    caught_by="error.unexpected",
    apply=_apply,
    where={"case": "mode_switch", "variant": "inference_first", "backend": "eager"},
)
