"""A linear layer whose three GEMMs run in FP8 inside an autocast region."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

import harness.fp8.ops  # noqa: F401 - defines torch.ops.fp8ref
from harness import torch_compat
from harness.fp8 import delayed, shapes, weight_cache
from harness.fp8.delayed import BACKWARD, FORWARD, DelayedTensors
from harness.fp8.key import RecipeKey
from harness.fp8.recipe import DelayedScaling, Recipe
from harness.fp8.state import FP8GlobalStateManager
from harness.fp8.weight_cache import WeightCache


class ToyLinear(torch.nn.Module):
    """y = x @ weight.T + bias. In an enabled region forward, dgrad and wgrad run in FP8; elsewhere it is ``F.linear``.

    Parameters ``weight`` (out_features, in_features) and ``bias`` (out_features), both of ``dtype``. The input may
    have leading batch dimensions and must have the weight's dtype; the bias is added outside the FP8 operator, in
    that dtype. Under ``torch.autocast`` input, result and bias are in its dtype instead, whatever the weight's is.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, dtype=dtype, device=device))
        self.bias = torch.nn.Parameter(torch.empty(out_features, dtype=dtype, device=device)) if bias else None
        self.delayed: DelayedTensors | None = None
        self.weight_cache: WeightCache | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(in_features), as ``torch.nn.Linear``."""
        bound = 1.0 / math.sqrt(self.in_features)
        torch.nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """What ``repr`` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def prepare_weight_cache(self, recipe: Recipe) -> WeightCache:
        """Make the tensors that ``is_first_microbatch`` keeps the quantised weight in.

        Eager calls do it themselves; compiled ones can't, so call it before compiling.

        Raises:
            ValueError: delayed scaling.
        """
        if recipe.delayed():
            weight_cache.refuse_delayed_scaling()
        cache = self.weight_cache
        if cache is None or not cache.fits(recipe, self.weight):
            cache = self.weight_cache = WeightCache(recipe, self.weight)
        FP8GlobalStateManager.get_skip_fp8_weight_update_tensor(self.weight.device)
        return cache

    def forward(self, x: torch.Tensor, is_first_microbatch: bool | None = None) -> torch.Tensor:
        """x (..., in_features) to (..., out_features).

        ``is_first_microbatch``: None quantises the weight on each call; True quantises it and keeps it, False uses the
        kept one. In a region with ``_graph=True`` the skip tensor of the global state decides between the two.

        Raises:
            ValueError: a dimension that the recipe's kernels can't take, an input of another dtype than the weight's,
                or ``is_first_microbatch`` under delayed scaling.
            DelayedScalingUnderCompileError: delayed scaling while torch.compile traces.
            RuntimeError: ``is_first_microbatch`` while torch.compile traces, and nothing is kept for the recipe.
        """
        state = FP8GlobalStateManager.quantization_state
        if not state.fp8_enabled:
            if state.fp8_calibration:
                self._calibrate(x)
            return functional.linear(x, self.weight, self.bias)
        recipe = FP8GlobalStateManager.get_fp8_recipe()
        delayed.refuse_under_compile(recipe)
        flat = shapes.in_compute_dtype(x.reshape(-1, x.shape[-1]), self.weight)
        shapes.check(recipe, flat, self.weight)
        if is_first_microbatch is not None:
            y = self._forward_cached(flat, recipe, is_first_microbatch)
        elif recipe.delayed():
            y = self._forward_delayed(flat, recipe)
        else:
            y = torch.ops.fp8ref.linear(flat, self.weight, None, None, RecipeKey(recipe.key))
        return self._add_bias(y.reshape(*x.shape[:-1], self.out_features))

    def _add_bias(self, y: torch.Tensor) -> torch.Tensor:
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def _forward_cached(self, flat: torch.Tensor, recipe: Recipe, is_first_microbatch: bool) -> torch.Tensor:
        cache = self.weight_cache
        if cache is None or not cache.fits(recipe, self.weight):
            if torch.compiler.is_compiling():
                weight_cache.refuse_to_allocate()
            cache = self.prepare_weight_cache(recipe)
        capturing = FP8GlobalStateManager.fp8_graph_capturing()
        skip = FP8GlobalStateManager.get_skip_fp8_weight_update_tensor(self.weight.device) if capturing else None
        return weight_cache.linear(cache, flat, self.weight, recipe, is_first_microbatch or capturing, skip)

    def _calibrate(self, x: torch.Tensor) -> None:
        """Record amaxes for delayed scaling without quantising; other recipes have nothing to calibrate."""
        recipe = FP8GlobalStateManager.get_fp8_recipe()
        delayed.refuse_under_compile(recipe)
        if recipe.delayed():
            self._record(x.reshape(-1, x.shape[-1]), recipe)

    def _record(self, flat: torch.Tensor, recipe: Recipe) -> DelayedTensors:
        """Fold the amaxes of input and weight into the running step, where a backward may follow.

        Inference moves no scale, and a recompute has been counted by its first forward.
        """
        length = recipe.amax_history_len if isinstance(recipe, DelayedScaling) else 1
        if self.delayed is None:
            self.delayed = DelayedTensors(length, self.weight.device)
        self.delayed.fit(length, self.weight.device)
        state = FP8GlobalStateManager.quantization_state
        if torch.is_grad_enabled() and delayed.REPLAY not in state.fp8_tensors_recompute_buffer:
            self.delayed.record(0, flat.detach())
            self.delayed.record(1, self.weight.detach())
            delayed.register(state, FORWARD, self.delayed, recipe, state.fp8_distributed_group)
        return self.delayed

    def _forward_delayed(self, flat: torch.Tensor, recipe: Recipe) -> torch.Tensor:
        tensors = self._record(flat, recipe)
        state = FP8GlobalStateManager.quantization_state
        scales = delayed.forward_scales(state, tensors)
        y: torch.Tensor = _DelayedLinear.apply(  # type: ignore[no-untyped-call]
            flat, self.weight, scales, tensors, recipe, state.fp8_distributed_group
        )
        return y


class _DelayedLinear(torch.autograd.Function):
    """The operators with scales of earlier steps. Backward uses the input's and weight's scales of its own forward."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        scales: torch.Tensor,
        tensors: DelayedTensors,
        recipe: Recipe,
        group: Any,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight, scales)
        ctx.tensors, ctx.recipe, ctx.group = tensors, recipe, group
        y: torch.Tensor = torch.ops.fp8ref.linear(x, weight, scales[0:1], scales[1:2], RecipeKey(recipe.key))
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, scales = ctx.saved_tensors
        tensors, key = ctx.tensors, RecipeKey(ctx.recipe.key)
        tensors.record(2, grad)
        _update_after_backward(tensors, ctx.recipe, ctx.group)
        grad_scale = tensors.scale[2:3].clone()
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.ops.fp8ref.dgrad(grad, weight, grad_scale, scales[1:2], key)
        if ctx.needs_input_grad[1]:
            grad_weight = torch.ops.fp8ref.wgrad(grad, x, weight, grad_scale, scales[0:1], key).to(weight.dtype)
        return grad_x, grad_weight, None, None, None, None


def _update_after_backward(tensors: DelayedTensors, recipe: Recipe, group: Any) -> None:
    """Update the gradient's scale once the running backward pass has ended, once however often the layer was used.

    The global state learns of it then and no earlier: a pass that ends with an exception leaves nothing there.
    """
    running = torch_compat.running_backward()
    if tensors.last_backward == running:
        return
    tensors.last_backward = running

    def update() -> None:
        delayed.register(FP8GlobalStateManager.quantization_state, BACKWARD, tensors, recipe, group)
        FP8GlobalStateManager.reduce_and_update_fp8_tensors(forward=False)

    torch_compat.after_backward(update)
