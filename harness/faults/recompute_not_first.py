"""A recompute opens its forward's region with the first-module flag taken: the module that was first in forward is not
first in its recompute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.checkpoint import _Recompute

    enter = _Recompute.__enter__

    def enter_taken(self: _Recompute) -> None:
        enabled, calibrating, recipe, group, _, capturing, depth = self._region
        self._region = (enabled, calibrating, recipe, group, False, capturing, depth)
        enter(self)

    with patched(_Recompute, "__enter__", enter_taken):
        yield provider


FAULT = Fault(
    name="recompute_not_first",
    breaks="a checkpointed first module is not the first in its recompute",
    caught_by="numerics.program",
    apply=_apply,
    report="NVIDIA/TransformerEngine#3213",
    where={"case": "first_module", "variant": "recompute"},
)
