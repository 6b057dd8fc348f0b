"""Calling a layer is calling its ``forward``: no hook that a user registered runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _straight(layer: Any, *args: Any, **kwargs: Any) -> Any:
    return layer.forward(*args, **kwargs)


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    with patched(ToyLinear, "__call__", _straight):
        yield provider


FAULT = Fault(
    name="hooks_skipped",
    breaks="hooks of a layer don't run",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "stack", "variant": "shared"},
)
