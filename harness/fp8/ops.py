"""The operators, namespace ``fp8ref``, all visible to the dispatcher and to the profiler.

``linear`` is what a module calls and what stands in captured graphs; ``dgrad`` and ``wgrad`` are its backward. Each
quantises its two operands and calls one ``product_*`` operator, inside which the real kernel runs: one such event is
one logical GEMM. They depend on their arguments alone, since Dynamo elides state writes and an operator would not see
the region.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from harness import torch_compat
from harness.fp8 import kernels, shapes, tap
from harness.fp8.key import RECIPE_KEY_TYPE, RecipeKey
from harness.fp8.quantizer import GRAD_OUTPUT, INPUT, WEIGHT, Quantized, quantize
from harness.fp8.recipe import Recipe, recipe_from_key

NAMESPACE = "fp8ref"

LIBRARY = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
TAGS = (torch.Tag.pt2_compliant_tag,)

_KEY = f"{RECIPE_KEY_TYPE} key"
_SCALES = "Tensor a, Tensor b, Tensor scale_a, Tensor scale_b"
_SCHEMAS = (
    f"linear(Tensor x, Tensor weight, Tensor? x_scale, Tensor? weight_scale, {_KEY}) -> Tensor",
    f"dgrad(Tensor grad, Tensor weight, Tensor? grad_scale, Tensor? weight_scale, {_KEY}) -> Tensor",
    f"wgrad(Tensor grad, Tensor x, Tensor weight, Tensor? grad_scale, Tensor? x_scale, {_KEY}) -> Tensor",
    f"product_tensorwise({_SCALES}, ScalarType out_dtype) -> Tensor",
    f"product_rowwise({_SCALES}, ScalarType out_dtype) -> Tensor",
    f"product_block({_SCALES}, ScalarType out_dtype) -> Tensor",
    f"product_mxfp8({_SCALES}, ScalarType out_dtype) -> Tensor",
    f"product_nvfp4({_SCALES}, Tensor global_a, Tensor global_b, ScalarType out_dtype) -> Tensor",
)
for _schema in _SCHEMAS:
    LIBRARY.define(_schema, tags=TAGS)  # type: ignore[no-untyped-call]

# Recipe name -> the operator that multiplies its operands.
PRODUCT_OPS = {
    "delayed_scaling": "product_tensorwise",
    "float8_current_scaling": "product_tensorwise",
    "float8_rowwise_scaling": "product_rowwise",
    "float8_block_scaling": "product_block",
    "mxfp8_block_scaling": "product_mxfp8",
    "nvfp4_block_scaling": "product_nvfp4",
}


def multiply(
    product: str, recipe: Recipe, a: Quantized, b: Quantized, out_dtype: torch.dtype, weight: torch.Tensor
) -> torch.Tensor:
    """Run one product through its operator and show the tap what the operator was given."""
    arguments = [a.data, b.data, a.scale, b.scale]
    if a.global_scale is not None and b.global_scale is not None:
        arguments += [a.global_scale, b.global_scale]
    output: torch.Tensor = getattr(torch.ops.fp8ref, PRODUCT_OPS[recipe.name])(*arguments, out_dtype)
    if tap.active():
        phase = "backward" if product != "fprop" else "recompute" if torch_compat.in_backward() else "forward"
        tap.emit(tap.Product(recipe.key, product, phase, a, b, output, weight.data_ptr()))
    return output


def in_order(operand: torch.Tensor, role: str) -> torch.Tensor:
    """The operand as quantisers read it, in the order of its storage: contiguous, whatever strides it was given."""
    del role
    return operand.contiguous()


def _linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    x_scale: torch.Tensor | None,
    weight_scale: torch.Tensor | None,
    key: RecipeKey,
) -> torch.Tensor:
    """x (M, K) @ weight (N, K).T -> (M, N) in the dtype of x."""
    recipe = recipe_from_key(key.key)
    shapes.check(recipe, x, weight)
    if x.shape[0] == 0:
        return x.new_zeros(0, weight.shape[0])
    a = quantize(in_order(x, INPUT), INPUT, recipe, x_scale)
    b = quantize(in_order(weight, WEIGHT), WEIGHT, recipe, weight_scale)
    return multiply("fprop", recipe, a, b, x.dtype, weight)


def _dgrad(
    grad: torch.Tensor,
    weight: torch.Tensor,
    grad_scale: torch.Tensor | None,
    weight_scale: torch.Tensor | None,
    key: RecipeKey,
) -> torch.Tensor:
    """grad (M, N) @ weight (N, K) -> (M, K), the gradient of x."""
    recipe = recipe_from_key(key.key)
    if grad.shape[0] == 0:
        return grad.new_zeros(0, weight.shape[1])
    a = quantize(in_order(grad, GRAD_OUTPUT), GRAD_OUTPUT, recipe, grad_scale)
    b = quantize(in_order(weight, WEIGHT).t().contiguous(), WEIGHT, recipe, weight_scale)
    return multiply("dgrad", recipe, a, b, grad.dtype, weight)


def _wgrad(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    grad_scale: torch.Tensor | None,
    x_scale: torch.Tensor | None,
    key: RecipeKey,
) -> torch.Tensor:
    """grad (M, N).T @ x (M, K) -> (N, K), the gradient of the weight, in the dtype of x."""
    recipe = recipe_from_key(key.key)
    if grad.shape[0] == 0:
        return over_no_rows(weight, x.dtype)
    a = quantize(in_order(grad, GRAD_OUTPUT).t().contiguous(), GRAD_OUTPUT, recipe, grad_scale)
    b = quantize(in_order(x, INPUT).t().contiguous(), INPUT, recipe, x_scale)
    return multiply("wgrad", recipe, a, b, x.dtype, weight)


def over_no_rows(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The weight's gradient (N, K) of an empty batch: a sum over nothing."""
    return torch.zeros_like(weight, dtype=dtype, memory_format=torch.contiguous_format)


def _fake_linear(
    x: torch.Tensor, weight: torch.Tensor, x_scale: Any, weight_scale: Any, key: RecipeKey
) -> torch.Tensor:
    recipe = recipe_from_key(key.key)
    shapes.check(recipe, x, weight)
    return x.new_empty(fake_shape(recipe, x, weight), dtype=fake_dtype(x))


def fake_shape(recipe: Recipe, x: torch.Tensor, weight: torch.Tensor) -> tuple[int, int]:
    """Shape of x (M, K) @ weight (N, K).T as tracing has it: (M, N), whatever the recipe pads inside."""
    del recipe
    return (x.shape[0], weight.shape[0])


def fake_dtype(x: torch.Tensor) -> torch.dtype:
    """Dtype of a product as tracing has it: the input's."""
    return x.dtype


def _fake_dgrad(
    grad: torch.Tensor, weight: torch.Tensor, grad_scale: Any, weight_scale: Any, key: RecipeKey
) -> torch.Tensor:
    return grad.new_empty((grad.shape[0], weight.shape[1]))


def _fake_wgrad(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, grad_scale: Any, x_scale: Any, key: RecipeKey
) -> torch.Tensor:
    return x.new_empty(weight.shape)


def _fake_product(a: torch.Tensor, b: torch.Tensor, *rest: Any) -> torch.Tensor:
    return a.new_empty((a.shape[0], b.shape[0]), dtype=rest[-1])


def _setup_linear(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, _, _, key = inputs
    ctx.save_for_backward(x, weight)
    ctx.key = key


def _linear_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Delayed scaling has its own backward (``linear._DelayedLinear``), so no scale of an earlier step appears here."""
    x, weight = ctx.saved_tensors
    grad_x = torch.ops.fp8ref.dgrad(grad, weight, None, None, ctx.key) if ctx.needs_input_grad[0] else None
    if not ctx.needs_input_grad[1]:
        return grad_x, None, None, None, None
    grad_weight = torch.ops.fp8ref.wgrad(grad, x, weight, None, None, ctx.key)
    return grad_x, grad_weight.to(weight.dtype), None, None, None


def outside_autocast(device: str) -> AbstractContextManager[Any]:
    """Inside an operator: ``torch.autocast``, which reaches into it, would round what the operator keeps in float32."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def install(name: str, implementation: Any, fake: Any) -> None:
    """Give a defined operator its implementation for every device, and its shapes for tracing."""

    def run(*args: Any) -> Any:
        with outside_autocast(args[0].device.type):
            return implementation(*args)

    LIBRARY.impl(name, run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)


install("linear", _linear, _fake_linear)
install("dgrad", _dgrad, _fake_dgrad)
install("wgrad", _wgrad, _fake_wgrad)
install("product_tensorwise", kernels.tensorwise, _fake_product)
install("product_rowwise", kernels.rowwise, _fake_product)
install("product_block", kernels.block, _fake_product)
install("product_mxfp8", kernels.mxfp8, _fake_product)
install("product_nvfp4", kernels.nvfp4, _fake_product)
torch.library.register_autograd(f"{NAMESPACE}::linear", _linear_backward, setup_context=_setup_linear, lib=LIBRARY)
