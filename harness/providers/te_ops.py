"""The operators over Transformer Engine's functional linear, namespace ``fp8te``.

``linear`` is what the module calls and what stands in captured graphs; ``dgrad`` and ``wgrad`` are its backward. An
operator gets the text of its recipe as an argument, since torch.compile elides writes to the library's state and an
operator would not see the region. It builds Transformer Engine's quantizers for that recipe and runs
``BasicLinear``'s functional forward or backward, in which the quantisation and the GEMM are the library's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from harness.providers import te_recipes, te_stack, te_tap
from harness.providers.te_key import TE_RECIPE_KEY_TYPE, TERecipeKey
from harness.providers.te_operands import Source
from harness.providers.te_tap import Product

NAMESPACE = "fp8te"

_LIBRARY = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
_TAGS = (torch.Tag.pt2_compliant_tag,)
_KEY = f"{TE_RECIPE_KEY_TYPE} key"
for _schema in (
    f"linear(Tensor x, Tensor weight, {_KEY}) -> Tensor",
    f"dgrad(Tensor grad, Tensor weight, {_KEY}) -> Tensor",
    f"wgrad(Tensor grad, Tensor x, Tensor weight, {_KEY}) -> Tensor",
):
    _LIBRARY.define(_schema, tags=_TAGS)  # type: ignore[no-untyped-call]

# Where a recipe of the per-tensor kind keeps how each role is quantised.
_QPARAMS = ("fp8_quant_fwd_inp", "fp8_quant_fwd_weight", "fp8_quant_bwd_grad")


@dataclass(frozen=True)
class Quantizers:
    """Transformer Engine's quantizers of one linear layer, by role."""

    input: Any
    weight: Any
    grad_output: Any


def quantizers_of(recipe: Any, forward: Any, backward: Any) -> Quantizers:
    """Quantizers from two recipe states, made ready as ``BasicLinear`` does: internal tensors, and for current
    scaling the recipe's own quantisation parameters."""
    found = Quantizers(*forward.make_quantizers(), *backward.make_quantizers())
    for quantizer, attribute in zip((found.input, found.weight, found.grad_output), _QPARAMS, strict=True):
        quantizer.internal = True
        if recipe.float8_current_scaling():
            parameters = getattr(recipe, attribute)
            quantizer.force_pow_2_scales = parameters.power_2_scale
            quantizer.amax_epsilon = parameters.amax_epsilon
    return found


def recipe_states(recipe: Any, device: torch.device) -> tuple[Any, Any]:
    """Transformer Engine's state for the two forward tensors and for the output's gradient."""
    create = te_stack.module("pytorch.quantization").RecipeState.create
    forward = create(recipe, mode="forward", num_quantizers=2, device=device)
    return forward, create(recipe, mode="backward", num_quantizers=1, device=device)


def quantised(tensor: torch.Tensor, quantizer: Any) -> Any:
    """The tensor quantised for both orientations at once, as ``BasicLinear``'s forward does where a backward follows.

    Per-tensor quantizers refuse to make the columnwise half alone.
    """
    quantizer.set_usage(rowwise=True, columnwise=True)
    return quantizer(tensor)


def fprop(x: torch.Tensor, weight: torch.Tensor, text: str, quantizers: Quantizers) -> tuple[torch.Tensor, Any, Any]:
    """x (M, K) @ weight (N, K).T in the dtype of x; beside it input and weight as a backward wants them.

    Raises:
        ValueError: dimensions that Transformer Engine's modules refuse. They ask before they quantise; its functional
            linear doesn't, and cuBLASLt would refuse some of them in its own words and take others.
    """
    dimensions_taken = te_stack.module("pytorch.utils").assert_dim_for_fp8_exec
    for tensor in (x, weight):
        dimensions_taken(tensor)
    functional = te_stack.module("pytorch.ops.basic.basic_linear").BasicLinear._functional_forward
    with te_tap.computing(Product(text, "fprop", Source("input", x), Source("weight", weight), weight)):
        y, x_quantised, w_quantised = functional(
            input=x,
            weight=weight,
            dtype=x.dtype,
            with_quantized_compute=True,
            input_quantizer=quantizers.input,
            weight_quantizer=quantizers.weight,
        )
    return y, x_quantised, w_quantised


@dataclass(frozen=True)
class Saved:
    """What a backward needs: input and weight as they were, and quantised. A quantised one that is None stands for a
    gradient that nobody wants: the weight for dgrad, the input for wgrad."""

    x: torch.Tensor
    weight: torch.Tensor
    x_quantised: Any = None
    w_quantised: Any = None


def backward(
    grad: torch.Tensor, saved: Saved, text: str, of: Quantizers
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of x (M, K) and of the weight (N, K), in the dtype of grad (M, N)."""
    functional = te_stack.module("pytorch.ops.basic.basic_linear").BasicLinear._functional_backward
    wants_x, wants_weight = saved.w_quantised is not None, saved.x_quantised is not None
    weight, products = saved.weight, []
    if wants_x:
        sources = Source("grad_output", grad), Source("weight", weight.t())
        products.append(Product(text, "dgrad", *sources, weight))
    if wants_weight:
        sources = Source("grad_output", grad.t()), Source("input", saved.x.t())
        products.append(Product(text, "wgrad", *sources, weight))
    with te_tap.computing(*products):
        grad_x, grad_weight = functional(
            grad_output=quantised(grad, of.grad_output),
            input=saved.x_quantised,
            weight=saved.w_quantised,
            input_requires_grad=wants_x,
            weight_requires_grad=wants_weight,
            dtype=grad.dtype,
            with_quantized_compute=True,
            input_quantizer=of.input,
            weight_quantizer=of.weight,
            grad_output_quantizer=of.grad_output,
        )
    return grad_x, grad_weight


def _stateless(key: TERecipeKey, device: torch.device) -> Quantizers:
    recipe = te_recipes.known(key.text).recipe
    return quantizers_of(recipe, *recipe_states(recipe, device))


def _linear(x: torch.Tensor, weight: torch.Tensor, key: TERecipeKey) -> torch.Tensor:
    return fprop(x.contiguous(), weight.detach().contiguous(), key.text, _stateless(key, x.device))[0]


def _dgrad(grad: torch.Tensor, weight: torch.Tensor, key: TERecipeKey) -> torch.Tensor:
    of, weight = _stateless(key, grad.device), weight.detach().contiguous()
    saved = Saved(grad, weight, w_quantised=quantised(weight, of.weight))
    result = backward(grad.contiguous(), saved, key.text, of)[0]
    return _present(result)


def _wgrad(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, key: TERecipeKey) -> torch.Tensor:
    of, x = _stateless(key, grad.device), x.contiguous()
    saved = Saved(x, weight.detach(), x_quantised=quantised(x, of.input))
    result = backward(grad.contiguous(), saved, key.text, of)[1]
    return _present(result)


def _present(result: torch.Tensor | None) -> torch.Tensor:
    if result is None:
        raise RuntimeError("BasicLinear's functional backward gave no gradient where one was asked for")
    return result


def _fake_linear(x: torch.Tensor, weight: torch.Tensor, key: TERecipeKey) -> torch.Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]))


def _fake_dgrad(grad: torch.Tensor, weight: torch.Tensor, key: TERecipeKey) -> torch.Tensor:
    return grad.new_empty((grad.shape[0], weight.shape[1]))


def _fake_wgrad(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, key: TERecipeKey) -> torch.Tensor:
    return grad.new_empty(weight.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, ctx.key = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    grad_x = torch.ops.fp8te.dgrad(grad, weight, ctx.key) if ctx.needs_input_grad[0] else None
    if not ctx.needs_input_grad[1]:
        return grad_x, None, None
    return grad_x, torch.ops.fp8te.wgrad(grad, x, weight, ctx.key).to(weight.dtype), None


def _install(name: str, implementation: Any, fake: Any) -> None:
    # Where a frame has fallen back to eager, Dynamo compiles every frame that runs below it, an operator's body too.
    body = torch.compiler.disable(implementation)  # type: ignore[no-untyped-call]
    _LIBRARY.impl(name, body, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)


_install("linear", _linear, _fake_linear)
_install("dgrad", _dgrad, _fake_dgrad)
_install("wgrad", _wgrad, _fake_wgrad)
torch.library.register_autograd(f"{NAMESPACE}::linear", _backward, setup_context=_setup, lib=_LIBRARY)
