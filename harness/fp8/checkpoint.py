"""Activation checkpointing that recomputes in the region of the forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.checkpoint

from harness.fp8 import delayed
from harness.fp8.state import AutocastState, FP8GlobalStateManager


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **kwargs: Any) -> Any:
    """``torch.utils.checkpoint.checkpoint`` whose recompute runs in the autocast region that was open at this call.

    Backward usually runs after the region is left; torch's own function would then recompute in high precision
    (NVIDIA/Megatron-LM#7538). With delayed scaling the recompute uses the scales of its forward and records no amax
    again. Compiled code needs none of this: the recipe is a constant of the graph, so there it is torch's function.

    Raises:
        ValueError: ``use_reentrant=True``, which runs the forward without gradients and so records nothing.
    """
    if use_reentrant:
        raise ValueError("harness.fp8.checkpoint is non-reentrant: use_reentrant=True is not supported")
    if torch.compiler.is_compiling():
        return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)
    region = FP8GlobalStateManager.get_autocast_state()
    stash: list[torch.Tensor] = []

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return _buffered(delayed.STASH, stash), _Recompute(region, stash)

    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, context_fn=contexts, **kwargs)


@contextmanager
def _buffered(key: str, scales: list[torch.Tensor]) -> Iterator[None]:
    """Put ``scales`` in the recompute buffer under ``key`` for a while."""
    buffer = FP8GlobalStateManager.quantization_state.fp8_tensors_recompute_buffer
    outer = dict(buffer)
    buffer.clear()
    buffer[key] = scales
    try:
        yield
    finally:
        buffer.clear()
        buffer.update(outer)


class _Recompute:
    """The forward's region and scales. Entered once for each backward over the graph, always from the same scales."""

    def __init__(self, region: AutocastState, stash: list[torch.Tensor]) -> None:
        self._region = region
        self._stash = stash
        self._entered = ExitStack()

    def __enter__(self) -> None:
        self._entered.callback(FP8GlobalStateManager.set_autocast_state, FP8GlobalStateManager.get_autocast_state())
        FP8GlobalStateManager.set_autocast_state(self._region)
        self._entered.enter_context(_buffered(delayed.REPLAY, list(self._stash)))

    def __exit__(self, *error: object) -> None:
        self._entered.close()
