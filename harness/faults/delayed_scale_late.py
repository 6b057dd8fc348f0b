"""Delayed scaling is one step later than it says: an update installs the scale that the update before it computed."""

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

    update = delayed.update
    pending: dict[int, torch.Tensor] = {}

    def later(recipe: Any, group: Any, amaxes: Any, histories: Any, scales: list[torch.Tensor], forward: bool) -> None:
        before = [scale.clone() for scale in scales]
        update(recipe, group, amaxes, histories, scales, forward)
        for scale, old in zip(scales, before, strict=True):
            computed = scale.clone()
            scale.copy_(pending.get(scale.data_ptr(), old))
            pending[scale.data_ptr()] = computed

    with patched(delayed, "update", later):
        yield provider


FAULT = Fault(
    name="delayed_scale_late",
    breaks="delayed scales are a step older than they should be",
    caught_by="numerics.scales",
    apply=_apply,
    report="NVIDIA/TransformerEngine#1190",
    where={"case": "delayed_scaling", "variant": "inside", "recipe": "delayed_scaling"},
)
