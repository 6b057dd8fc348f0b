"""A reset replaces the tensor that says whether kept weights stay: a captured graph goes on reading the old one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import FP8GlobalStateManager as Manager

    reset = Manager.reset

    def replacing(cls: type) -> None:
        tensors = Manager.quantization_state.skip_fp8_weight_update_tensor
        old = dict(tensors)
        tensors.clear()
        reset()
        tensors.update({device: tensor.new_zeros(1) for device, tensor in old.items()})

    with patched(Manager, "reset", classmethod(replacing)):
        yield provider


FAULT = Fault(
    name="dead_skip_tensor",
    breaks="after a reset a captured graph reads a dead tensor and keeps weights that were to be quantised",
    caught_by="case.facts",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2759",
    where={"case": "cudagraph", "variant": "kept_weight"},
    needs="cuda",
)
