"""A linear layer whose three GEMMs are Transformer Engine's inside its autocast region."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from harness.providers import te_ops, te_recipes, te_stack
from harness.providers.te_key import TERecipeKey


class DelayedScale:
    """Scales and amax histories of one layer under one delayed scaling recipe, in Transformer Engine's own hands.

    They are registered in the library's global buffers, as its modules do: leaving the outermost region updates those
    of input and weight, the backward of the region's first module those of the output's gradient.
    """

    def __init__(self, recipe: Any, group: Any, device: torch.device) -> None:
        manager = te_stack.module("pytorch.quantization").FP8GlobalStateManager
        forward, backward = te_ops.recipe_states(recipe, device)
        self.text = te_recipes.note(recipe)
        self.quantizers = te_ops.quantizers_of(recipe, forward, backward)
        self._meta = {"scaling_fwd": forward, "scaling_bwd": backward, "recipe": recipe, "fp8_group": group}
        self._manager = manager
        self._checkpoints = te_stack.module("pytorch.distributed")
        manager.add_fp8_tensors_to_global_buffer(self._meta)

    @property
    def recomputes(self) -> bool:
        """True in the second forward of a checkpointed body."""
        return bool(self._checkpoints.in_fp8_activation_recompute_phase())

    @contextmanager
    def of_this_forward(self) -> Iterator[None]:
        """The scales that a forward must quantise with, as the library's modules arrange it: a checkpointed forward
        puts them by, its recompute takes them back, and afterwards what has been recorded since is in force again."""
        if self.recomputes:
            self._manager.get_old_fp8_meta_tensors_for_recompute(self._meta)
            try:
                yield
            finally:
                self._manager.restore_fp8_meta_tensors(self._meta)
            return
        if self._checkpoints.is_fp8_activation_recompute_enabled():
            self._manager.copy_forward_fp8_meta_tensors_for_recompute(self._meta)
        yield


def _supported(recipe: Any) -> None:
    """For versions whose modules have nothing of the kind to ask."""


def _outside_dynamo(function: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    """The result of ``function``, whose frames torch.compile doesn't look at."""
    y: torch.Tensor = torch.compiler.disable(function)(*args)  # type: ignore[no-untyped-call]
    return y


class TELinear(torch.nn.Module):
    """y = x @ weight.T + bias. In an enabled region forward, dgrad and wgrad run in Transformer Engine; elsewhere it is
    ``F.linear``.

    Parameters ``weight`` (out_features, in_features) and ``bias`` (out_features), both of ``dtype``. The bias is added
    outside the quantised product, in that dtype. Under ``torch.autocast`` all but the weight is in its dtype instead.
    """

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.out_features = out_features
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, dtype=dtype, device=device))
        self.bias = torch.nn.Parameter(torch.empty(out_features, dtype=dtype, device=device)) if bias else None
        quantization = te_stack.module("pytorch.quantization")
        self._manager = quantization.FP8GlobalStateManager
        self._check_support = getattr(quantization, "check_recipe_support", _supported)
        self._delayed: DelayedScale | None = None
        bound = 1.0 / math.sqrt(in_features)
        torch.nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., in_features) to (..., out_features).

        Raises:
            RuntimeError: whatever Transformer Engine refuses: delayed scaling while torch.compile traces, dimensions
            that its kernels can't take.
        """
        if not self._manager.is_fp8_enabled():
            return functional.linear(x, self.weight, self.bias)
        recipe = self._manager.get_fp8_recipe()
        flat = x.reshape(-1, x.shape[-1])
        if torch.is_autocast_enabled(x.device.type):  # as Transformer Engine's modules do; a weight keeps its dtype
            flat = flat.to(torch.get_autocast_dtype(x.device.type))
        if recipe.delayed():
            self._check_support(recipe)
            # Dynamo keeps out, as it does of Transformer Engine's own modules. Traced code was refused a line above.
            y = _outside_dynamo(self._forward_delayed, flat, recipe)
        else:
            if not torch.compiler.is_compiling():
                te_recipes.note(recipe)
            y = torch.ops.fp8te.linear(flat, self.weight, TERecipeKey(te_recipes.text_of(recipe)))
        y = y.reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def _forward_delayed(self, flat: torch.Tensor, recipe: Any) -> torch.Tensor:
        if self._delayed is None or self._delayed.text != te_recipes.text_of(recipe):
            self._delayed = DelayedScale(recipe, self._manager.get_fp8_group(), self.weight.device)
        trains = torch.is_grad_enabled() and (flat.requires_grad or self.weight.requires_grad)
        first = trains and self._claims_first(self._delayed)
        with self._delayed.of_this_forward():
            y: torch.Tensor = _DelayedLinear.apply(flat, self.weight, self._delayed, first)  # type: ignore[no-untyped-call]
        return y

    def _claims_first(self, delayed: DelayedScale) -> bool:
        """Transformer Engine's modules ask the same question, of the same flag, under the same condition; in a
        recompute they leave the flag as it was."""
        state = self._manager.quantization_state
        before = state.is_first_fp8_module
        first: bool = self._manager.is_first_fp8_module()
        if delayed.recomputes:
            state.is_first_fp8_module = before
        return first


class _DelayedLinear(torch.autograd.Function):
    """Forward and backward with the scales of earlier steps; backward keeps the tensors that forward quantised."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, delayed: DelayedScale, first: bool) -> torch.Tensor:
        x, weight = x.contiguous(), weight.detach().contiguous()
        y, ctx.x, ctx.w = te_ops.fprop(x, weight, delayed.text, delayed.quantizers)
        ctx.save_for_backward(x, weight)
        ctx.delayed, ctx.first = delayed, first
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        saved = te_ops.Saved(
            x,
            weight,
            x_quantised=ctx.x if ctx.needs_input_grad[1] else None,
            w_quantised=ctx.w if ctx.needs_input_grad[0] else None,
        )
        grad_x, grad_weight = te_ops.backward(grad.contiguous(), saved, ctx.delayed.text, ctx.delayed.quantizers)
        if ctx.first:
            te_stack.module("pytorch.quantization").FP8GlobalStateManager.reduce_and_update_fp8_tensors(forward=False)
        return grad_x, None if grad_weight is None else grad_weight.to(weight.dtype), None, None
