"""Amaxes are not reduced over the group that a region names: each process has scales of its own."""

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

    def alone(recipe: Any, group: Any, *tensors: Any) -> None:
        del group
        update(recipe, None, *tensors)

    with patched(delayed, "update", alone):
        yield provider


FAULT = Fault(
    name="amax_not_reduced",
    breaks="scales of a group are those of each process alone",
    caught_by="case.facts",
    apply=_apply,
    where={
        "case": "delayed_scaling",
        "variant": "resized",
        "recipe": {"name": "delayed_scaling", "amax_history_len": 2},
    },
)
