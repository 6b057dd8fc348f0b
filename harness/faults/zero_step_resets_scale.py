"""A step of zeros sets a delayed scale back to 1; it should stay as it was."""

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
    from harness.fp8 import delayed

    next_scale = delayed.next_scale

    def reset(amax: torch.Tensor, previous: torch.Tensor, *limits: Any) -> torch.Tensor:
        return next_scale(amax, torch.where(amax == 0, torch.ones_like(previous), previous), *limits)

    with patched(delayed, "next_scale", reset):
        yield provider


FAULT = Fault(
    name="zero_step_resets_scale",
    breaks="an amax of zero resets a delayed scale",
    caught_by="case.facts",
    apply=_apply,
    where={
        "case": "delayed_scaling",
        "variant": "resized",
        "recipe": {"name": "delayed_scaling", "amax_history_len": 2},
    },
)
