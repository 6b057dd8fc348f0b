"""The FP8 layers are switched off for Dynamo, so that nothing fails and nothing of them is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import ToyLinear

    hidden = torch.compiler.disable(ToyLinear.forward)  # type: ignore[no-untyped-call]
    with patched(ToyLinear, "forward", hidden):
        yield provider


FAULT = Fault(
    name="layer_disabled",
    breaks="FP8 layers run outside of every graph, each a graph break where no region is around it",
    caught_by="compile.breaks",
    apply=_apply,
    report="NVIDIA/TransformerEngine#308",
    where={"case": "autocast_outside", "fullgraph": False},
)
