"""Inputs, gradients and a weight whose elements do not lie in memory in the order of their indices: transposed, a slice
of something wider, with a storage offset, expanded.

Catches: a kernel or a quantiser that reads storage from its start, or in its order, whatever the strides say; a layout
that eager code takes and compiled code refuses (pytorch/pytorch#129521: strides with padding); a layer that takes the
FP8 path for inputs of few dimensions only. Values, shapes and dtypes are right in all of these: nothing but the layout
differs from a program that works.

Of the inputs of four layers two have the layout when they enter what is compiled, transposed and sliced with an offset,
so that strides are part of its guards; two get it inside, as sequence-first attention and a broadcast over four
dimensions do. What follows the layers gives their gradients such layouts too: ``sum`` expands one, ``cat`` and a
transpose make a transposed slice with an offset of another. The weight of one layer is stored transposed, as a
checkpoint of a library with the other convention has it (not where a provider multiplies a copy of such a weight: the
tap can't tell whose copy it is).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from cases.toy_linear import HISTORY_STEPS, STEPS, linears_of
from harness.data import draw
from harness.program import Case, CaseContext, Expects, Program
from harness.providers.protocol import Provider
from harness.types import Axes

LAYERS = 4
TRANSPOSED = 2  # the layer whose weight lies column by column


def inputs_of(ctx: CaseContext, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """(M, K) transposed, (M, K) out of (M, 2 K) behind the first K columns, and (N,), all with gradients."""
    rows, width, out = ctx.axes.shape
    transposed, wide, row = (
        draw(ctx.axes.data, shape, generator, ctx.dtype, ctx.device)
        for shape in ((width, rows), (rows, 2 * width), (out,))
    )
    return tuple(x.requires_grad_() for x in (transposed.t(), wide[:, width:], row))


def store_transposed(layer: torch.nn.Module) -> None:
    """The same weight in a parameter whose first dimension has the stride 1."""
    weight = layer.get_parameter("weight").detach()
    layer.weight = torch.nn.Parameter(weight.t().contiguous().t())


def build(ctx: CaseContext) -> Program:
    """Four layers whose results stand below each other."""
    layers = linears_of(ctx, LAYERS)
    if ctx.told["strided_weights"]:
        store_transposed(layers[TRANSPOSED])
    autocast, recipe = ctx.provider.autocast, ctx.axes.recipe

    def forward(
        recipes: tuple[object, ...], transposed: torch.Tensor, sliced: torch.Tensor, row: torch.Tensor
    ) -> torch.Tensor:
        rows = transposed.shape[0]
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](transposed)
            halves = layers[1](x.reshape(2, rows // 2, -1).transpose(0, 1))
            y = layers[2](sliced)
            z = layers[3](row.expand(2, rows // 4, 2, -1)).sum((0, 1, 2)) / rows
        x = halves.transpose(0, 1).reshape(rows, -1)
        return torch.cat([x.t() + z[:, None], y.t()])

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=lambda generator: inputs_of(ctx, generator),
        expects=Expects(
            fp8_linears=(recipe.label,) * LAYERS,
            steps=HISTORY_STEPS if recipe.name == "delayed_scaling" else STEPS,
        ),
    )


def asks(provider: Provider, axes: Axes, arch: str) -> Mapping[str, Any]:
    """Whether the layers multiply a weight as it is stored, or a copy of it."""
    del axes, arch
    return {"strided_weights": getattr(provider, "strided_weights", True)}


CASE = Case(
    name="layouts",
    build=build,
    catches="an input, gradient or weight that is read in storage order, or from its storage's start",
    answers=("pytorch/pytorch#129521",),
    asks=asks,
)
