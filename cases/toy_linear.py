"""A stack of ToyLinears under every way of nesting autocast regions.

Catches: a graph break or an eager fallback at a region's edge, the outer recipe used inside an inner region (or the
inner one after it), FP8 that stays on where it was switched off, a layer that silently runs in high precision.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.data import draw
from harness.program import Case, CaseContext, Expects, Program
from harness.providers.protocol import Autocast

Layers = torch.nn.ModuleList
Forward = Callable[..., torch.Tensor]


def bare(layers: Layers) -> Forward:
    """Two layers and no region: what is compiled knows nothing of one that is opened around it."""

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        del recipes
        return layers[1](layers[0](x))  # type: ignore[no-any-return]

    return forward


def flat(autocast: Autocast, layers: Layers) -> Forward:
    """Two layers in one region."""

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[1](layers[0](x))  # type: ignore[no-any-return]

    return forward


def _nested(autocast: Autocast, layers: Layers) -> Forward:
    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with autocast(enabled=True, recipe=recipes[1]):
                x = layers[1](x)
            x = layers[2](x)
        return x

    return forward


def _nested_disabled(autocast: Autocast, layers: Layers) -> Forward:
    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with autocast(enabled=False):
                x = layers[1](x)
            x = layers[2](x)
        return x

    return forward


def _deep(autocast: Autocast, layers: Layers) -> Forward:
    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with autocast(enabled=True, recipe=recipes[1]):
                x = layers[1](x)
                with autocast(enabled=True, recipe=recipes[0]):
                    x = layers[2](x)
                x = layers[3](x)
            x = layers[4](x)
        return x

    return forward


def _sequential(autocast: Autocast, layers: Layers) -> Forward:
    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
        x = layers[1](x)  # between two regions: plain high precision
        with autocast(enabled=True, recipe=recipes[1]):
            x = layers[2](x)
        return x

    return forward


# Per nesting: the program, and for each layer in forward order who gives its recipe: outer, inner or nobody ("-").
NESTED_PROGRAMS: dict[str, tuple[Callable[[Autocast, Layers], Forward], str]] = {
    "flat": (flat, "oo"),
    "nested": (_nested, "oio"),
    "nested_disabled": (_nested_disabled, "o-o"),
    "deep": (_deep, "oioio"),
    "sequential": (_sequential, "o-i"),
}

# Two steps with data of other magnitudes, so that nothing kept from the first one can pass for right in the second.
# Scales of a recipe with history move only after the first step, so its numerics need a few.
STEPS = 2
HISTORY_STEPS = 4


def linears_of(ctx: CaseContext, count: int, *, bias: bool = True) -> Layers:
    """``count`` ToyLinears that can be chained.

    They alternate between K -> N and N -> K, so that a transposed operand meets a shape that differs.
    """
    _, in_features, out_features = ctx.axes.shape
    sizes = [(in_features, out_features) if i % 2 == 0 else (out_features, in_features) for i in range(count)]
    return Layers(ctx.provider.linear(a, b, bias=bias, dtype=ctx.dtype, device=ctx.device) for a, b in sizes)


def rows_of(ctx: CaseContext) -> Callable[[torch.Generator], tuple[torch.Tensor, ...]]:
    """What draws the one input (M, K) of the first layer, gradient required."""
    rows, in_features, _ = ctx.axes.shape

    def make_inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        x = draw(ctx.axes.data, (rows, in_features), generator, ctx.dtype, ctx.device)
        return (x.requires_grad_(True),)

    return make_inputs


def build(ctx: CaseContext) -> Program:
    """Build the program of ``ctx.axes.nesting``."""
    make_forward, owners = NESTED_PROGRAMS[ctx.axes.nesting]
    layers = linears_of(ctx, len(owners))
    model = torch.nn.Module()
    model.add_module("layers", layers)
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    labels = {"o": outer.label, "i": inner.label}
    return Program(
        model=model,
        forward=make_forward(ctx.provider.autocast, layers),
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        expects=Expects(
            fp8_linears=tuple(labels[owner] for owner in owners if owner != "-"),
            steps=HISTORY_STEPS if outer.name == "delayed_scaling" else STEPS,
        ),
    )


CASE = Case(
    name="toy_linear",
    build=build,
    catches=(
        "breaks and eager fallback at region edges, a wrong recipe inside or after a nested region, high precision "
        "in place of FP8"
    ),
    answers=("NVIDIA/TransformerEngine#2759", "NVIDIA/TransformerEngine#187", "pytorch/pytorch#150477"),
)
