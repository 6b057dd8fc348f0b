"""What the reference system offers beyond the provider protocol, by name (harness.program.features_of).

Each looks its function up when it is called, so that a fault that patches the library is met.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from harness import fp8
from harness.fp8 import support
from harness.fp8.delayed import DelayedTensors
from harness.fp8.recipe import Recipe
from harness.types import Spec

_CHECKS = {
    "float8_block_scaling": "check_fp8_block_scaling_support",
    "mxfp8_block_scaling": "check_mxfp8_support",
    "nvfp4_block_scaling": "check_nvfp4_support",
}
_PER_TENSOR = "check_fp8_support"  # and per row: the same kernels


def _checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return fp8.checkpoint(function, *args, **kwargs)


def _first_module() -> bool:
    return fp8.FP8GlobalStateManager.is_first_fp8_module()


def _reset_state() -> None:
    fp8.FP8GlobalStateManager.reset()


def _support_check(recipe_name: str) -> tuple[bool, str]:
    check: Callable[[], tuple[bool, str]] = getattr(fp8, _CHECKS.get(recipe_name, _PER_TENSOR))
    return check()


def _cached_linear(layer: torch.nn.Module, x: torch.Tensor, first: bool) -> torch.Tensor:
    return layer(x, is_first_microbatch=first)  # type: ignore[no-any-return]


def recipe_keys(recipe: Recipe) -> Sequence[str]:
    """What the library tells recipes apart by: operators and guards know the key alone."""
    return (recipe.key,)


def default_recipe(arch: str) -> Spec:
    """The recipe of a region that names none, on ``arch``."""
    return Spec(support.default_recipe_name(arch))


def delayed_scales(layer: torch.nn.Module) -> Mapping[str, tuple[float, list[float]]]:
    """Encode scale and amax history (row 0: the running step) of a layer's input, weight and grad_output."""
    kept = getattr(layer, "delayed", None)
    if not isinstance(kept, DelayedTensors):
        return {}
    scales, columns = kept.scale.tolist(), kept.history.t().tolist()
    return dict(zip(("input", "weight", "grad_output"), zip(scales, columns, strict=True), strict=True))


def _refuses_kept_delayed() -> tuple[str, str]:
    return "ValueError", "weights are not kept under DelayedScaling"


def _refuses_other_dtype() -> tuple[str, str]:
    return "ValueError", "input is .*, but the weight is"


FEATURES: Mapping[str, Callable[..., Any]] = {
    "copies": copy.deepcopy,
    "refuses_kept_delayed": _refuses_kept_delayed,
    "refuses_other_dtype": _refuses_other_dtype,
    "checkpoint": _checkpoint,
    "cached_linear": _cached_linear,
    "prepare_weight_cache": fp8.ToyLinear.prepare_weight_cache,
    "decorating_autocast": fp8.autocast,
    "answers_follow_arch": support.pretend,
    "calibrating_autocast": functools.partial(fp8.autocast, enabled=False, calibrating=True),
    "capturing_autocast": functools.partial(fp8.autocast, _graph=True),
    "skip_weight_update": fp8.FP8GlobalStateManager.set_skip_fp8_weight_update_tensor,
    "recipe_keys": recipe_keys,
    "default_recipe": default_recipe,
    "delayed_scales": delayed_scales,
    "first_module": _first_module,
    "reset_state": _reset_state,
    "support_check": _support_check,
}
