"""Checkpoints: the flags that say which forward of a body runs, and the non-reentrant form."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from transformer_engine.pytorch.quantization import FP8GlobalStateManager, autocast

_IN_ACTIVATION_RECOMPUTE_REGION = False
_ACTIVATION_RECOMPUTE_PHASE = False


class activation_recompute_forward:
    _is_first_fp8_module: list[bool] = []  # noqa: RUF012


def in_fp8_activation_recompute_phase() -> bool:
    return _ACTIVATION_RECOMPUTE_PHASE


def is_fp8_activation_recompute_enabled() -> bool:
    return _IN_ACTIVATION_RECOMPUTE_REGION and FP8GlobalStateManager.is_fp8_enabled()


@contextmanager
def _phase(second: bool) -> Iterator[None]:
    global _IN_ACTIVATION_RECOMPUTE_REGION, _ACTIVATION_RECOMPUTE_PHASE
    _IN_ACTIVATION_RECOMPUTE_REGION, _ACTIVATION_RECOMPUTE_PHASE = True, second
    try:
        yield
    finally:
        _IN_ACTIVATION_RECOMPUTE_REGION = _ACTIVATION_RECOMPUTE_PHASE = False


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool = False) -> Any:
    recipe = FP8GlobalStateManager.get_fp8_recipe()

    @contextmanager
    def again() -> Iterator[None]:
        with _phase(second=True), autocast(enabled=True, recipe=recipe):
            yield

    return torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=use_reentrant, context_fn=lambda: (_phase(second=False), again())
    )
