"""An MLP of ToyLinears: one recipe a layer, a weight used twice, norms, compiled as a whole or module by module.

Catches: a recipe that belongs to another layer, a gradient of a shared weight that overwrites instead of adding, a norm
that compiled code hands to a quantiser in more precision than eager does (pytorch/pytorch#150859), a module compiled
once for each instance where equal shapes can share a graph, hooks of a layer that don't run or see other tensors
(``module_hooks``).

Activations are smooth: at the step of a ReLU's gradient a rounding decides between a gradient and none, and a correct
kernel is then off by the whole of it (measured on an H200).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import gelu, rms_norm

from cases.module_hooks import module_hooks
from cases.toy_linear import Layers, linears_of, rows_of
from harness.program import Case, CaseContext, Expects, Program, Step

DEPTH = 4
STEPS = 2


def _whole(ctx: CaseContext, layers: Layers) -> Callable[..., torch.Tensor]:
    """Every layer in a region of its own, outer and inner recipe in turn."""
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(layers):
            with autocast(enabled=True, recipe=recipes[index % 2]):
                x = gelu(layer(x))
        return x

    return forward


def _shared(ctx: CaseContext, layers: Layers) -> Callable[..., torch.Tensor]:
    """The first pair of layers runs twice: once in each recipe."""
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        for recipe in recipes:
            with autocast(enabled=True, recipe=recipe):
                x = gelu(layers[1](gelu(layers[0](x))))
        return x

    return forward


def _normed(ctx: CaseContext, layers: Layers) -> Callable[..., torch.Tensor]:
    """A norm before each layer: fused into a quantiser, it may keep a precision that eager rounds away."""
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(layers):
            with autocast(enabled=True, recipe=recipes[index % 2]):
                x = layer(rms_norm(x, x.shape[-1:]))
        return x

    return forward


def _one_layer(ctx: CaseContext, layers: Layers) -> Callable[..., torch.Tensor]:
    """What is compiled is one layer, whichever it is given."""
    del layers
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object], layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return gelu(layer(x))

    return forward


def _by_module(layers: Layers) -> Callable[[Step], torch.Tensor]:
    def drive(step: Step) -> torch.Tensor:
        (x,) = step.inputs
        for index, layer in enumerate(layers):
            x = step.forward((step.recipes[index % 2],), layer, x)
        return x

    return drive


# Per variant: what is compiled, its number of layers, and for each FP8 linear in order who gives its recipe.
VARIANTS = {
    "whole": (_whole, DEPTH, "oioi"),
    "shared": (_shared, 2, "ooii"),
    "normed": (_normed, DEPTH, "oioi"),
    "by_module": (_one_layer, DEPTH, "oioi"),
}


def build(ctx: CaseContext) -> Program:
    """Build the program of ``ctx.axes.variant``."""
    make_forward, depth, owners = VARIANTS[ctx.axes.variant]
    layers = linears_of(ctx, depth)
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    labels = {"o": outer.label, "i": inner.label}
    by_module = ctx.axes.variant == "by_module"
    # Layers of equal shape and recipe share a graph: K -> N always runs in the outer recipe, N -> K in the inner one.
    graphs = 2 if by_module else 1
    return Program(
        model=layers,
        forward=make_forward(ctx, layers),
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        drive=_by_module(layers) if by_module else None,
        probes=module_hooks(ctx) if ctx.axes.variant == "shared" else None,
        expects=Expects(
            fp8_linears=tuple(labels[owner] for owner in owners),
            steps=STEPS,
            graphs=graphs,
            recompiles=graphs - 1,
        ),
    )


CASE = Case(
    name="stack",
    build=build,
    catches="another layer's recipe, a lost gradient of a shared weight, a graph for each instance of a module",
    answers=(
        "NVIDIA/TransformerEngine#93",
        "NVIDIA/TransformerEngine#705",
        "pytorch/ao#2586",
        "pytorch/pytorch#150859",
    ),
)
