"""Delayed scaling computes the gradient's scale with the forward format's maximum: 448 where E5M2 reaches 57344."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import delayed

    update = delayed.update

    def as_forward(recipe: Any, group: Any, amaxes: Any, histories: Any, scales: Any, forward: bool) -> None:
        del forward
        update(recipe, group, amaxes, histories, scales, True)

    with patched(delayed, "update", as_forward):
        yield provider


FAULT = Fault(
    name="gradient_scale_of_e4m3",
    breaks="a gradient's delayed scale fits the forward format: its upper seven octaves are never used",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "delayed_scaling", "variant": "inside", "recipe": "delayed_scaling"},
)
