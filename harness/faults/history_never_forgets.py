"""The largest amax ever seen stays in the history, whatever its length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import delayed

    update = delayed.update

    def hoarding(
        recipe: Any, group: Any, amaxes: Any, histories: list[torch.Tensor], scales: Any, forward: bool
    ) -> None:
        largest = [history.amax(dim=0) for history in histories]
        update(recipe, group, amaxes, histories, scales, forward)
        for history, amax in zip(histories, largest, strict=True):
            history[-1] = amax

    with patched(delayed, "update", hoarding):
        yield provider


FAULT = Fault(
    name="history_never_forgets",
    breaks="scales follow the largest amax of all time",
    caught_by="numerics.scales",
    apply=_apply,
    report="NVIDIA/TransformerEngine#1190",
    where={"case": "delayed_scaling", "variant": "inside", "recipe": "delayed_scaling"},
)
