"""Layers whose weight is frozen, between layers that are trained: fine-tuning by adapters (LoRA, arXiv:2106.09685).

Catches: a frozen layer that runs in high precision, forward or backward; a weight gradient that is computed though
nobody wants it; a gradient that stops at a frozen layer; a graph for each mix of wanted gradients.

Four layers in one region on an input that needs no gradient either. The first is frozen whole (a forward product and
nothing else), the second is trained and so has a weight gradient but passes none on, the third has a frozen weight and
a trained bias (it passes a gradient on and has none of its own weight), the fourth is trained.
"""

from __future__ import annotations

import torch

from cases.refusals import delayed_refusal
from cases.toy_linear import HISTORY_STEPS, STEPS, linears_of, rows_of
from harness.program import Case, CaseContext, Expects, Program, StepExpects

LAYERS = 4
FROZEN = ("0.weight", "0.bias", "2.weight")
PASSING_ON, TRAINED = 2, 2  # the last two layers, and the second and fourth


def build(ctx: CaseContext) -> Program:
    """Two frozen and two trained layers."""
    layers = linears_of(ctx, LAYERS)
    for name, parameter in layers.named_parameters():
        parameter.requires_grad_(name not in FROZEN)
    autocast, recipe = ctx.provider.autocast, ctx.axes.recipe
    label, draw = recipe.label, rows_of(ctx)

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            for layer in layers:
                x = layer(x)
        return x

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=lambda generator: tuple(x.detach() for x in draw(generator)),
        expects=Expects(
            schedule=(StepExpects((label,) * LAYERS, dgrad=(label,) * PASSING_ON, wgrad=(label,) * TRAINED),),
            steps=HISTORY_STEPS if recipe.name == "delayed_scaling" else STEPS,
            raises=delayed_refusal(ctx),
        ),
    )


CASE = Case(
    name="frozen",
    build=build,
    catches="high precision, a needless weight gradient or a lost input gradient where a weight is frozen",
)
