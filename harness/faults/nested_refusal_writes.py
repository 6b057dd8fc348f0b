"""Inside another region the recipe is written before it is checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.state import FP8GlobalStateManager

    enter = FP8GlobalStateManager.autocast_enter

    def writing(**arguments: Any) -> None:
        state = FP8GlobalStateManager.quantization_state
        if state.autocast_depth > 0:
            state.fp8_recipe = arguments["fp8_recipe"]
        enter(**arguments)

    with patched(FP8GlobalStateManager, "autocast_enter", staticmethod(writing)):
        yield provider


FAULT = Fault(
    name="nested_refusal_writes",
    breaks="a refusal inside a region leaves the refused recipe in force there",
    caught_by="case.facts",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2759",
    where={
        "case": "unsupported_recipe",
        "provider": {"name": "reference", "emulate": False},
        "recipe": "mxfp8_block_scaling",
        "arch": "sm90",
    },
)
