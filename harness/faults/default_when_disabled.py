"""A disabled region builds the default recipe, which nothing will use."""

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

    def building(**arguments: Any) -> None:
        if arguments["fp8_recipe"] is None:
            arguments["fp8_recipe"] = FP8GlobalStateManager.get_default_fp8_recipe()
        enter(**arguments)

    with patched(FP8GlobalStateManager, "autocast_enter", staticmethod(building)):
        yield provider


FAULT = Fault(
    name="default_when_disabled",
    breaks="a recipe is built for a region that is disabled",
    caught_by="case.facts",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2759",
    where={"case": "disabled", "variant": "before"},
)
