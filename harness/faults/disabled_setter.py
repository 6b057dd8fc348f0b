"""State is written behind a function that Dynamo may not trace: a break in the region's entry and exit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, by_provider, te_region_fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.state import FP8GlobalStateManager

    hidden = torch.compiler.disable(FP8GlobalStateManager.set_autocast_state)  # type: ignore[no-untyped-call]
    with patched(FP8GlobalStateManager, "set_autocast_state", staticmethod(hidden)):
        yield provider


def _te_region(autocast: Any, manager: Any) -> Any:
    del manager
    hidden = torch.compiler.disable(autocast.__exit__)  # type: ignore[no-untyped-call]

    class Hidden(autocast):  # type: ignore[misc]
        def __exit__(self, *exc_info: object) -> None:
            hidden(self, *exc_info)

    return Hidden


FAULT = Fault(
    name="disabled_setter",
    breaks="a graph break in the region's entry and exit",
    caught_by="compile.eager_frames",
    apply=by_provider(_apply, te_region_fault(_te_region)),
    report="NVIDIA/TransformerEngine#705",
    where={"fullgraph": False},
    providers=BOTH,
)
