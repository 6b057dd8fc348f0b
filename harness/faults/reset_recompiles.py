"""A reset of the state forgets what was compiled too, so that values baked into graphs can't be stale: each reset costs
every graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    reset = provider.reset

    def reset_all() -> None:
        reset()
        torch.compiler.reset()

    with patched(provider, "reset", reset_all):
        yield provider


FAULT = Fault(
    name="reset_recompiles",
    breaks="a reset between two calls has everything compiled again",
    caught_by="compile.graphs",
    apply=_apply,
    report="NVIDIA/TransformerEngine#3130",
    where={"case": "reset_between_calls", "variant": "between"},
)
