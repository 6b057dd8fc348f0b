"""Quantised weights that are kept over the micro-batches of a step.

``ToyLinear.forward(x, is_first_microbatch=True)`` quantises the weight and keeps it, ``False`` uses what is kept. In a
region that was opened for graph capture (``_graph=True``) the skip tensor of the global state decides at run time
instead, so that one captured graph serves every micro-batch. What is kept are bytes in tensors that are allocated once,
filled at once and written in place: a graph that holds them never reads a dead or an empty one.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.fp8 import quantizer, shapes, tap
from harness.fp8.key import RECIPE_KEY_TYPE, RecipeKey
from harness.fp8.ops import LIBRARY, NAMESPACE, TAGS, install, multiply
from harness.fp8.quantizer import GRAD_OUTPUT, INPUT, WEIGHT, Quantized, quantize
from harness.fp8.recipe import MXFP8BlockScaling, NVFP4BlockScaling, Recipe, recipe_from_key
from harness.fp8.tracing import run_while_tracing


class WeightCache:
    """What one module keeps for one recipe: the bytes of its weight (N, K) as fprop needs it and of its transpose."""

    def __init__(self, recipe: Recipe, weight: torch.Tensor) -> None:
        self.key = recipe.key
        with torch.inference_mode(False), torch.no_grad():
            self.tensors = _quantized_bytes(weight, recipe)
        tap.keep(self.tensors, weight, None)

    def fits(self, recipe: Recipe, weight: torch.Tensor) -> bool:
        """Whether what is kept belongs to this recipe and lies on the weight's device."""
        return self.key == recipe.key and self.tensors[0].device == weight.device


@run_while_tracing
def refuse_to_allocate() -> bool:
    """Tensors that outlive a graph can't be made while it is traced.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(
        "is_first_microbatch under torch.compile needs tensors that outlive the graph: "
        "call prepare_weight_cache(recipe) on the layer before compiling"
    )


@run_while_tracing
def refuse_delayed_scaling() -> bool:
    """A kept weight would need the scale of its own step.

    Raises:
        ValueError: always.
    """
    raise ValueError("weights are not kept under DelayedScaling: call the layer without is_first_microbatch")


def linear(
    cache: WeightCache, x: torch.Tensor, weight: torch.Tensor, recipe: Recipe, refresh: bool, skip: torch.Tensor | None
) -> torch.Tensor:
    """x (M, K) @ the kept weight (N, K).T; with ``refresh`` it is quantised anew first, unless ``skip`` holds 1."""
    key = RecipeKey(recipe.key)
    if refresh:
        torch.ops.fp8ref.refresh_weight(weight.detach(), cache.tensors, skip, key)
    y: torch.Tensor = torch.ops.fp8ref.linear_cached(x, weight, cache.tensors, key)
    return y


def _quantized_bytes(weight: torch.Tensor, recipe: Recipe) -> list[torch.Tensor]:
    """Data, scale and, for NVFP4, the tensor's scale of the weight, then the same of its transpose, all as uint8."""
    kept: list[torch.Tensor] = []
    for source in (weight.contiguous(), weight.t().contiguous()):
        operand = quantize(source, WEIGHT, recipe)
        kept += [operand.data.view(torch.uint8), operand.scale.contiguous().view(torch.uint8)]
        if operand.global_scale is not None:
            kept.append(operand.global_scale.view(torch.uint8))
    return kept


def _kept_operand(cache: list[torch.Tensor], transposed: bool, weight: torch.Tensor, recipe: Recipe) -> Quantized:
    half = len(cache) // 2
    data, scale, *whole = cache[half:] if transposed else cache[:half]
    source = tap.source_of(cache, weight)
    source = source.t() if transposed else source
    block = quantizer.block_shape(recipe, WEIGHT, source)
    if isinstance(recipe, NVFP4BlockScaling):
        block_scale, tensor_scale = scale.view(torch.float8_e4m3fn), whole[0].view(torch.float32)
        return Quantized(WEIGHT, "e2m1", block, data, block_scale, source, tensor_scale)
    target = quantizer.element_format(recipe, WEIGHT)
    scale_dtype = torch.float8_e8m0fnu if isinstance(recipe, MXFP8BlockScaling) else torch.float32
    return Quantized(WEIGHT, target.name, block, data.view(target.dtype), scale.view(scale_dtype), source)


def _refresh_weight(weight: torch.Tensor, cache: list[torch.Tensor], skip: torch.Tensor | None, key: RecipeKey) -> None:
    """Quantise and compare on the device: reading ``skip`` on the host would end a graph capture."""
    for kept, fresh in zip(cache, _quantized_bytes(weight, recipe_from_key(key.key)), strict=True):
        kept.copy_(fresh if skip is None else torch.where(skip != 0, kept, fresh))
    tap.keep(cache, weight, skip)


def _linear_cached(x: torch.Tensor, weight: torch.Tensor, cache: list[torch.Tensor], key: RecipeKey) -> torch.Tensor:
    recipe = recipe_from_key(key.key)
    shapes.check(recipe, x, weight)
    if x.shape[0] == 0:
        return x.new_zeros(0, weight.shape[0])
    a = quantize(x.contiguous(), INPUT, recipe)
    return multiply("fprop", recipe, a, _kept_operand(cache, False, weight, recipe), x.dtype, weight)


def _dgrad_cached(grad: torch.Tensor, weight: torch.Tensor, cache: list[torch.Tensor], key: RecipeKey) -> torch.Tensor:
    recipe = recipe_from_key(key.key)
    if grad.shape[0] == 0:
        return grad.new_zeros(0, weight.shape[1])
    a = quantize(grad.contiguous(), GRAD_OUTPUT, recipe)
    return multiply("dgrad", recipe, a, _kept_operand(cache, True, weight, recipe), grad.dtype, weight)


def _fake_refresh(weight: Any, cache: Any, skip: Any, key: RecipeKey) -> None:
    return None


def _fake_linear(x: torch.Tensor, weight: torch.Tensor, cache: Any, key: RecipeKey) -> torch.Tensor:
    shapes.check(recipe_from_key(key.key), x, weight)
    return x.new_empty((x.shape[0], weight.shape[0]))


def _fake_dgrad(grad: torch.Tensor, weight: torch.Tensor, cache: Any, key: RecipeKey) -> torch.Tensor:
    return grad.new_empty((grad.shape[0], weight.shape[1]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, cache, ctx.key = inputs
    ctx.save_for_backward(x, weight, *cache)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    x, weight, *cache = ctx.saved_tensors
    grad_x = torch.ops.fp8ref.dgrad_cached(grad, weight, cache, ctx.key) if ctx.needs_input_grad[0] else None
    if not ctx.needs_input_grad[1]:
        return grad_x, None, [None] * len(cache), None
    grad_weight = torch.ops.fp8ref.wgrad(grad, x, weight, None, None, ctx.key)
    return grad_x, grad_weight.to(weight.dtype), [None] * len(cache), None


for _schema in (
    f"refresh_weight(Tensor weight, Tensor(a!)[] cache, Tensor? skip, {RECIPE_KEY_TYPE} key) -> ()",
    f"linear_cached(Tensor x, Tensor weight, Tensor[] cache, {RECIPE_KEY_TYPE} key) -> Tensor",
    f"dgrad_cached(Tensor grad, Tensor weight, Tensor[] cache, {RECIPE_KEY_TYPE} key) -> Tensor",
):
    LIBRARY.define(_schema, tags=TAGS)  # type: ignore[no-untyped-call]
install("refresh_weight", _refresh_weight, _fake_refresh)
install("linear_cached", _linear_cached, _fake_linear)
install("dgrad_cached", _dgrad_cached, _fake_dgrad)
torch.library.register_autograd(f"{NAMESPACE}::linear_cached", _backward, setup_context=_setup, lib=LIBRARY)
