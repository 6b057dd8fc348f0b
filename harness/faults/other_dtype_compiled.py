"""Compiled code casts an input to the weight's dtype where eager code refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import shapes

    wanted = shapes.in_compute_dtype

    def cast(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        takes_any = torch.compiler.is_compiling() and not torch.is_autocast_enabled(x.device.type)
        return wanted(x.to(weight.dtype) if takes_any else x, weight)

    with patched(shapes, "in_compute_dtype", cast):
        yield provider


FAULT = Fault(
    name="other_dtype_compiled",
    breaks="an input of another dtype is refused in eager and cast when compiled",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "microbatch", "variant": "flag"},
)
