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


def _region_answers() -> tuple[bool, bool, Any]:
    manager = fp8.FP8GlobalStateManager
    return manager.is_fp8_enabled(), manager.is_fp8_calibration(), manager.get_fp8_group()


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


def _refuses_other_width() -> tuple[str, str]:
    return "ValueError", "the input's last dimension is .*, but in_features is"


def _names_misaligned(dimension: str, value: int) -> str:
    return rf"\b{'batch rows' if dimension == 'rows' else dimension} is {value}\b.* multiple of"


_FORMATS: Mapping[str, tuple[Any, ...]] = {"fp8_format": ("E5M2", "", 8)}
_PER_TENSOR_FIELDS: Mapping[str, tuple[Any, ...]] = {
    **_FORMATS,
    "power_2_scale": (1, "yes"),
    "amax_epsilon": (-1.0, float("inf"), float("nan")),
}
_REFUSED: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "delayed_scaling": {
        **_FORMATS,
        "amax_history_len": (0, -1, 2.5),
        "amax_compute_algo": ("", "median"),
        "margin": (0.5, "1"),
    },
    "float8_current_scaling": _PER_TENSOR_FIELDS,
    "float8_rowwise_scaling": _PER_TENSOR_FIELDS,
    "float8_block_scaling": {**_FORMATS, "use_f32_scales": (2, "no"), "amax_epsilon": (-1.0, float("nan"))},
    "mxfp8_block_scaling": {**_FORMATS, "scale_rounding": ("", "nearest")},
    "nvfp4_block_scaling": {
        "disable_rht": (False,),
        "disable_stochastic_rounding": (False,),
        "disable_2d_quantization": (2,),
    },
}


def refused_values(recipe_name: str) -> Mapping[str, tuple[Any, ...]]:
    """Values out of range, by field: recipes with any of them are refused when they are made."""
    return _REFUSED[recipe_name]


def _refuses_foreign_recipe() -> tuple[str, str]:
    return "TypeError", "recipe must be a recipe of harness.fp8, got "


FEATURES: Mapping[str, Callable[..., Any]] = {
    "copies": copy.deepcopy,
    "refused_values": refused_values,
    "refuses_foreign_recipe": _refuses_foreign_recipe,
    "refuses_kept_delayed": _refuses_kept_delayed,
    "refuses_other_dtype": _refuses_other_dtype,
    "refuses_other_width": _refuses_other_width,
    "names_misaligned": _names_misaligned,
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
    "region_answers": _region_answers,
    "reset_state": _reset_state,
    "support_check": _support_check,
}
