"""Leaving a region restores nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, by_provider, te_region_fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.state import FP8GlobalStateManager

    restore = FP8GlobalStateManager.set_autocast_state

    def keep_enabled(saved: tuple[object, ...]) -> None:
        enabled = FP8GlobalStateManager.quantization_state.fp8_enabled
        restore((enabled or saved[0], *saved[1:]))  # type: ignore[arg-type]

    with patched(FP8GlobalStateManager, "set_autocast_state", staticmethod(keep_enabled)):
        yield provider
    FP8GlobalStateManager.reset()


def _te_region(autocast: Any, manager: Any) -> Any:
    class Leaky(autocast):  # type: ignore[misc]
        def __exit__(self, *exc_info: object) -> None:
            enabled = manager.quantization_state.fp8_enabled
            super().__exit__(*exc_info)
            manager.quantization_state.fp8_enabled = enabled or manager.quantization_state.fp8_enabled

    return Leaky


FAULT = Fault(
    name="leaky_exit",
    breaks="FP8 stays enabled after a region was left",
    caught_by="state.unchanged",
    apply=by_provider(_apply, te_region_fault(_te_region)),
    report="NVIDIA/TransformerEngine#187",
    providers=BOTH,
)
