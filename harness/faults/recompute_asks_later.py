"""Whether scales are kept for a recompute is decided by the region around the checkpoint, whether they are put back by
the layer's own: with a region inside the checkpointed body nothing was kept, and backward fails.

Real code: the two questions of NVIDIA/TransformerEngine#3284, one asked at the checkpoint's call, one in backward.
"""

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
    from harness.fp8 import FP8GlobalStateManager, delayed

    module = importlib.import_module("harness.fp8.checkpoint")  # the package has a function of that name
    buffered = module._buffered

    def asking(key: str, scales: list[Any]) -> AbstractContextManager[Any]:
        around = FP8GlobalStateManager.quantization_state.fp8_recipe
        if key == delayed.STASH and (around is None or not around.delayed()):
            return nullcontext()
        kept: AbstractContextManager[Any] = buffered(key, scales)
        return kept

    with patched(module, "_buffered", asking):
        yield provider


FAULT = Fault(
    name="recompute_asks_later",
    breaks="scales that a recompute needs were not kept, since the region is inside the checkpointed body",
    caught_by="error.unexpected",
    apply=_apply,
    report="NVIDIA/TransformerEngine#3284",
    where={"case": "checkpoint", "variant": "own_both", "recipe": "delayed_scaling", "fullgraph": False},
)
