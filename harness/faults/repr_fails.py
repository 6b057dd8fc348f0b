"""A layer's ``extra_repr`` reads a field that the layer doesn't have (any more)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _of_old(layer: Any) -> str:
    return f"tp_size={layer.tp_size}"


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    with patched(ToyLinear, "extra_repr", _of_old):
        yield provider


FAULT = Fault(
    name="repr_fails",
    breaks="showing a layer raises an exception",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "stack", "variant": "shared"},
)
