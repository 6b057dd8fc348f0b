"""Leaving a region restores nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
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


FAULT = Fault(
    name="leaky_exit",
    breaks="FP8 stays enabled after a region was left",
    caught_by="state.unchanged",
    apply=_apply,
    report="NVIDIA/TransformerEngine#187",
)
