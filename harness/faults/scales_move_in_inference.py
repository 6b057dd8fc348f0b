"""Delayed scaling records amaxes and moves its scales in a forward without gradients, too."""

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
    from harness.fp8 import ToyLinear

    record = ToyLinear._record

    def always(layer: Any, *args: Any) -> Any:
        with torch.enable_grad():
            return record(layer, *args)

    with patched(ToyLinear, "_record", always):
        yield provider


FAULT = Fault(
    name="scales_move_in_inference",
    breaks="inference moves delayed scales",
    caught_by="case.facts",
    apply=_apply,
    where={
        "case": "delayed_scaling",
        "variant": "resized",
        "recipe": {"name": "delayed_scaling", "amax_history_len": 2},
    },
)
