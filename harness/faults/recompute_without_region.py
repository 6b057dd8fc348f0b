"""The library's checkpoint recomputes in whatever region is open by then: usually none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.checkpoint import _Recompute

    def nothing(self: Any, *error: object) -> None:
        del self, error

    with patched(_Recompute, "__enter__", nothing), patched(_Recompute, "__exit__", nothing):
        yield provider


FAULT = Fault(
    name="recompute_without_region",
    breaks="eager code recomputes a checkpointed body in high precision, since its region was left",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    report="NVIDIA/Megatron-LM#7538",
    # Square layers: others save tensors of another shape in high precision, and torch's checkpoint then says so.
    where={"case": "checkpoint", "variant": "own_around", "shape": [128, 128, 128]},
)
