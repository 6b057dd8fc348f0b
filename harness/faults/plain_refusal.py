"""DelayedScaling is refused by a plain raise, which fullgraph=False swallows: the frame runs eagerly instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import delayed
    from harness.fp8.recipe import Recipe

    def refuse(recipe: Recipe) -> None:
        if recipe.delayed() and torch.compiler.is_compiling():
            raise RuntimeError("DelayedScaling is not supported under torch.compile")

    with patched(delayed, "refuse_under_compile", refuse):
        yield provider


FAULT = Fault(
    name="plain_refusal",
    breaks="DelayedScaling runs silently in eager mode where its refusal was documented",
    caught_by="error.refusal",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2759",
    where={"recipe": "delayed_scaling", "fullgraph": False},
)
