"""A checkpointed forward puts its scales by and clears the place at its end, which an exception inside never reaches:
the scales of the failed forward stay there, and those of the next ones join them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _until_its_end(key: str, scales: list[torch.Tensor]) -> Iterator[None]:
    from harness.fp8 import FP8GlobalStateManager

    buffer = FP8GlobalStateManager.quantization_state.fp8_tensors_recompute_buffer
    outer = dict(buffer)
    buffer.clear()
    buffer[key] = scales
    yield
    buffer.clear()
    buffer.update(outer)


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    # The package has a function of the module's name.
    with patched(importlib.import_module("harness.fp8.checkpoint"), "_buffered", _until_its_end):
        yield provider
    provider.reset()


FAULT = Fault(
    name="stash_left_by_exception",
    breaks="an exception in a checkpointed forward leaves the scales that were put by for its recompute",
    caught_by="state.unchanged",
    apply=_apply,
    where={"case": "delayed_scaling", "variant": "checkpoint", "recipe": "delayed_scaling", "backend": "eager"},
)
