"""A reset leaves out one field, the depth: after a reset in an open region the next region takes itself for an inner
one.

Real code: a ``reset`` that lists the fields, and a field that was added later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.state import FP8GlobalStateManager

    reset = FP8GlobalStateManager.reset

    def all_but_depth() -> None:
        state = FP8GlobalStateManager.quantization_state
        depth = state.autocast_depth
        reset()
        state.autocast_depth = depth

    with patched(FP8GlobalStateManager, "reset", staticmethod(all_but_depth)):
        yield provider
    FP8GlobalStateManager.reset()


FAULT = Fault(
    name="reset_forgets_depth",
    breaks="a reset forgets one field of the state",
    caught_by="state.unchanged",
    apply=_apply,
    where={"case": "reset_between_calls", "variant": "inside"},
)
