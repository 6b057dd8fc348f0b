"""Layers whose weight is no parameter but is computed from one: by a parametrization, or as a slice of something wider.

Catches: a layer that takes the FP8 path for a leaf only, and runs in high precision for any other weight; a weight
gradient that doesn't arrive at what the weight was made of; a quantiser that reads a slice from its storage's start.

``parametrized``: each weight is a parameter times a gain for each row, as weight normalisation has it
(arXiv:1602.07868), through ``torch.nn.utils.parametrize``. ``sliced``: the weights of both layers are the halves of one
parameter, as fused projections are stored.
"""

from __future__ import annotations

import torch
from torch.nn.utils import parametrize

from cases.refusals import delayed_refusal
from cases.toy_linear import HISTORY_STEPS, STEPS, rows_of
from harness.program import Case, CaseContext, Expects, Program

LAYERS = 2


class Gain(torch.nn.Module):
    """A weight (N, K) times one gain for each row."""

    def __init__(self, rows: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(rows, dtype=dtype, device=device))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight of the layer, same shape."""
        return weight * self.gain[:, None]


class Half(torch.nn.Module):
    """Rows of ``whole``, which another layer has too; the layer's own parameter goes unused and is left out."""

    def __init__(self, whole: torch.nn.Parameter, start: int, rows: int) -> None:
        super().__init__()
        self.whole, self.start, self.rows = whole, start, rows

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """(rows, K) of ``whole``."""
        del weight
        return self.whole[self.start : self.start + self.rows]


def _parametrized(ctx: CaseContext, layers: torch.nn.ModuleList) -> None:
    for layer in layers:
        rows = layer.get_parameter("weight").shape[0]
        parametrize.register_parametrization(layer, "weight", Gain(rows, ctx.dtype, ctx.device))


def _sliced(ctx: CaseContext, layers: torch.nn.ModuleList) -> None:
    rows, width = layers[0].get_parameter("weight").shape
    whole = torch.nn.Parameter(torch.empty(LAYERS * rows, width, dtype=ctx.dtype, device=ctx.device))
    for index, layer in enumerate(layers):
        layer.get_parameter("weight").requires_grad_(False)
        parametrize.register_parametrization(layer, "weight", Half(whole, index * rows, rows))


VARIANTS = {"parametrized": _parametrized, "sliced": _sliced}


def build(ctx: CaseContext) -> Program:
    """Two layers on the same rows, in one region; their results stand below each other."""
    _, width, out = ctx.axes.shape
    layers = torch.nn.ModuleList(
        ctx.provider.linear(width, out, bias=True, dtype=ctx.dtype, device=ctx.device) for _ in range(LAYERS)
    )
    VARIANTS[ctx.axes.variant](ctx, layers)
    autocast, recipe = ctx.provider.autocast, ctx.axes.recipe

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return torch.cat([layer(x) for layer in layers])

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=rows_of(ctx),
        expects=Expects(
            fp8_linears=(recipe.label,) * LAYERS,
            steps=HISTORY_STEPS if recipe.name == "delayed_scaling" else STEPS,
            raises=delayed_refusal(ctx),
        ),
    )


CASE = Case(
    name="derived",
    build=build,
    catches="high precision, or a gradient that never arrives, where a weight is computed from parameters",
)
