"""Backward opens its layer's region and queues what closes it for the end of the pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness import torch_compat
    from harness.faults.patching import patched
    from harness.fp8 import FP8GlobalStateManager as Manager
    from harness.fp8 import ToyLinear

    forward = ToyLinear.forward

    def opening(self: Any, x: torch.Tensor, is_first_microbatch: bool | None = None) -> torch.Tensor:
        y = forward(self, x, is_first_microbatch)
        if torch.compiler.is_compiling() or not (Manager.is_fp8_enabled() and y.requires_grad):
            return y
        region = Manager.get_autocast_state()

        def enter(grad: torch.Tensor) -> None:
            outer = Manager.get_autocast_state()
            if outer[-1] == 0:
                Manager.set_autocast_state(region)
                torch_compat.after_backward(lambda: Manager.set_autocast_state(outer))

        y.register_hook(enter)  # type: ignore[no-untyped-call]
        return y

    with patched(ToyLinear, "forward", opening):
        yield provider
    provider.reset()


FAULT = Fault(
    name="backward_restores_at_end",
    breaks="a backward pass that fails leaves FP8 enabled",
    caught_by="state.unchanged",
    apply=_apply,
    report="NVIDIA/TransformerEngine#3213",
    where={"case": "exception", "variant": "backward"},
)
