"""State is written behind a function that Dynamo may not trace: a break in the region's entry and exit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.state import FP8GlobalStateManager

    hidden = torch.compiler.disable(FP8GlobalStateManager.set_autocast_state)  # type: ignore[no-untyped-call]
    with patched(FP8GlobalStateManager, "set_autocast_state", staticmethod(hidden)):
        yield provider


FAULT = Fault(
    name="disabled_setter",
    breaks="a graph break in the region's entry and exit",
    caught_by="compile.eager_frames",
    apply=_apply,
    report="NVIDIA/TransformerEngine#705",
    where={"fullgraph": False},
)
