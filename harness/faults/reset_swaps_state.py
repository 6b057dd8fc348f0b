"""A reset puts a new object in the place of the state: what holds the old one (compiled code's guards, a caller, a
captured graph) follows it no longer.

Real code: ``reset`` as ``cls.state = State()``, the shortest way to forget nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.state import FP8GlobalState, FP8GlobalStateManager

    held = FP8GlobalStateManager.quantization_state

    def swap() -> None:
        state = FP8GlobalState()
        state.skip_fp8_weight_update_tensor = held.skip_fp8_weight_update_tensor
        FP8GlobalStateManager.quantization_state = state

    with patched(FP8GlobalStateManager, "quantization_state", held):
        with patched(FP8GlobalStateManager, "reset", staticmethod(swap)):
            yield provider


FAULT = Fault(
    name="reset_swaps_state",
    breaks="a reset swaps the object that holds the state",
    caught_by="state.unchanged",
    apply=_apply,
    report="NVIDIA/TransformerEngine#3130",
    where={"case": "reset_between_calls", "variant": "between"},
)
