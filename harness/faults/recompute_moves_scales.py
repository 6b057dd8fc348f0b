"""A recompute under delayed scaling counts as another forward: it takes the next step's scales."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import delayed

    module = importlib.import_module("harness.fp8.checkpoint")  # the package has a function of that name
    buffered = module._buffered

    def forgetful(key: str, scales: list[Any]) -> AbstractContextManager[Any]:
        return nullcontext() if key == delayed.REPLAY else buffered(key, scales)

    with patched(module, "_buffered", forgetful):
        yield provider


FAULT = Fault(
    name="recompute_moves_scales",
    breaks="a recompute records amaxes again and quantises with the scales of the next step",
    caught_by="numerics.scales",
    apply=_apply,
    report="NVIDIA/TransformerEngine#1190",
    where={"case": "checkpoint", "variant": "own_around", "recipe": "delayed_scaling"},
)
