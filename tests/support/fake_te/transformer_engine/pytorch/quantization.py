"""State of the regions, capability checks, and the states from which quantizers are made."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch

from transformer_engine.common.recipe import (
    DelayedScaling,
    Float8CurrentScaling,
    Format,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)
from transformer_engine.pytorch.tensors import TYPES, BlockQuantizer, DType, PerTensorQuantizer
from transformer_engine.pytorch.utils import get_device_compute_capability

_FP8_SUPPORT = None
_MXFP8_SUPPORT = None


def is_fp8_available(return_reason: bool = False) -> tuple[bool, str]:
    global _FP8_SUPPORT
    if _FP8_SUPPORT is None:
        _FP8_SUPPORT = (get_device_compute_capability() >= (8, 9), "needs compute capability 8.9")
    return _FP8_SUPPORT


def is_fp8_block_scaling_available(return_reason: bool = False) -> tuple[bool, str]:
    return get_device_compute_capability() >= (9, 0), "needs compute capability 9.0"


def is_mxfp8_available(return_reason: bool = False) -> tuple[bool, str]:
    global _MXFP8_SUPPORT
    if _MXFP8_SUPPORT is None:
        _MXFP8_SUPPORT = ((10, 0) <= get_device_compute_capability() < (12, 0), "needs compute capability 10.x")
    return _MXFP8_SUPPORT


def is_nvfp4_available(return_reason: bool = False) -> tuple[bool, str]:
    return get_device_compute_capability() >= (10, 0), "needs compute capability 10.0"


def get_default_fp8_recipe() -> Any:
    if is_mxfp8_available()[0]:
        return MXFP8BlockScaling()
    return Float8CurrentScaling() if get_device_compute_capability() >= (12, 0) else DelayedScaling()


def check_recipe_support(recipe: Any) -> None:
    if torch.compiler.is_compiling() and isinstance(recipe, DelayedScaling):
        raise RuntimeError("DelayedScaling is not supported under torch.compile")
    if isinstance(recipe, (MXFP8BlockScaling, NVFP4BlockScaling)):
        raise RuntimeError("needs compute capability 10.0")


@dataclass
class State:
    fp8_enabled: bool = False
    fp8_recipe: Any = None
    autocast_depth: int = 0
    is_first_fp8_module: bool = False
    global_amax_buffer: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    global_amax_history_buffer: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    global_scale_buffer: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    autocast_arguments: dict[str, Any] = field(default_factory=dict)
    fp8_tensors_recompute_buffer: list[Any] = field(default_factory=list)


class FP8GlobalStateManager:
    quantization_state = State()

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        return cls.quantization_state.fp8_enabled

    @classmethod
    def is_fp8_calibration(cls) -> bool:
        return False

    @classmethod
    def get_fp8_recipe(cls) -> Any:
        return cls.quantization_state.fp8_recipe

    @classmethod
    def get_fp8_group(cls) -> None:
        return None

    @classmethod
    def get_unique_autocast_key(cls, recipe: Any, group: Any) -> str:
        return f"{recipe}:{group}"

    @classmethod
    def is_first_fp8_module(cls) -> bool:
        first, cls.quantization_state.is_first_fp8_module = cls.quantization_state.is_first_fp8_module, False
        return first

    @classmethod
    def add_fp8_tensors_to_global_buffer(cls, meta: dict[str, Any]) -> None:
        state = cls.quantization_state
        for direction in ("forward", "backward"):
            made = meta["scaling_fwd" if direction == "forward" else "scaling_bwd"]
            key = f"{direction}_{meta['recipe']}"
            state.global_amax_buffer.setdefault(key, []).append(made.amax_history[0])
            state.global_amax_history_buffer.setdefault(key, []).append(made.amax_history)
            state.global_scale_buffer.setdefault(key, []).append(made.scale)

    @classmethod
    def copy_forward_fp8_meta_tensors_for_recompute(cls, meta: dict[str, Any]) -> None:
        buffer, made = cls.quantization_state.fp8_tensors_recompute_buffer, meta["scaling_fwd"]
        if "place" not in meta:
            meta["place"] = len(buffer)
            buffer.append(deque())
        buffer[meta["place"]].append((made.amax_history.clone(), made.scale.clone()))

    @classmethod
    def get_old_fp8_meta_tensors_for_recompute(cls, meta: dict[str, Any]) -> None:
        made = meta["scaling_fwd"]
        meta["since"] = made.amax_history.clone(), made.scale.clone()
        stashed = cls.quantization_state.fp8_tensors_recompute_buffer[meta["place"]].popleft()
        made.amax_history.copy_(stashed[0])
        made.scale.copy_(stashed[1])

    @staticmethod
    def restore_fp8_meta_tensors(meta: dict[str, Any]) -> None:
        meta["scaling_fwd"].amax_history.copy_(meta["since"][0])
        meta["scaling_fwd"].scale.copy_(meta["since"][1])

    @classmethod
    def reduce_and_update_fp8_tensors(cls, forward: bool) -> None:
        state = cls.quantization_state
        for key, histories in state.global_amax_history_buffer.items():
            if not key.startswith("forward" if forward else "backward"):
                continue
            recipe = state.autocast_arguments[key.partition("_")[2]]
            top = TYPES[dtype_of(recipe, forward)][1]
            for history, scale in zip(histories, state.global_scale_buffer[key], strict=True):
                amax = history.amax(0) if recipe.amax_compute_algo == "max" else history[0].clone()
                fresh = torch.full_like(amax, top) / amax / 2**recipe.margin
                scale.copy_(torch.where((amax > 0) & torch.isfinite(fresh), fresh, scale))
                history.copy_(history.roll(-1, 0))
                history[0] = 0


class autocast:
    def __init__(self, enabled: bool = True, recipe: Any = None) -> None:
        self.enabled, self.recipe = enabled, recipe

    def __enter__(self) -> None:
        if self.enabled:
            self.recipe = get_default_fp8_recipe() if self.recipe is None else self.recipe
            check_recipe_support(self.recipe)
        state = FP8GlobalStateManager.quantization_state
        self.before = state.fp8_enabled, state.fp8_recipe, state.is_first_fp8_module
        if not torch.compiler.is_compiling() and self.recipe is not None:
            state.autocast_arguments[str(self.recipe)] = self.recipe
        state.fp8_enabled, state.fp8_recipe = self.enabled, self.recipe
        if state.autocast_depth == 0:
            state.is_first_fp8_module = True
        state.autocast_depth += 1

    def __exit__(self, *exc_info: object) -> None:
        state = FP8GlobalStateManager.quantization_state
        state.autocast_depth -= 1
        state.fp8_enabled, state.fp8_recipe, state.is_first_fp8_module = self.before
        if self.enabled and state.autocast_depth == 0:
            FP8GlobalStateManager.reduce_and_update_fp8_tensors(forward=True)


def dtype_of(recipe: Any, forward: bool) -> DType:
    return DType.kFloat8E4M3 if forward or recipe.fp8_format is Format.E4M3 else DType.kFloat8E5M2


class RecipeState:
    """Scales and histories of delayed scaling; nothing for the others."""

    def __init__(self, recipe: Any, forward: bool, count: int) -> None:
        self.recipe, self.forward, self.count = recipe, forward, count
        if recipe.delayed():
            self.scale = torch.ones(count)
            self.amax_history = torch.zeros(recipe.amax_history_len, count)

    @staticmethod
    def create(recipe: Any, *, mode: str, num_quantizers: int, device: torch.device) -> "RecipeState":
        return RecipeState(recipe, mode == "forward", num_quantizers)

    def make_quantizers(self) -> list[Any]:
        dtype = dtype_of(self.recipe, self.forward)
        if self.recipe.delayed():
            slots = range(self.count)
            return [PerTensorQuantizer(dtype, self.scale[i : i + 1], self.amax_history[:, i]) for i in slots]
        if self.recipe.float8_current_scaling():
            return [PerTensorQuantizer(dtype) for _ in range(self.count)]
        roles = ("fp8_quant_fwd_inp", "fp8_quant_fwd_weight") if self.forward else ("fp8_quant_bwd_grad",)
        return [BlockQuantizer(dtype, getattr(self.recipe, role), 1 + role.endswith("weight")) for role in roles]
