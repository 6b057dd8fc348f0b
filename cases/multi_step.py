"""Ten optimizer steps: weights change, and what a library keeps of them must change too.

Catches: a quantised weight that is kept after its weight moved, a scale or an amax of an earlier step, gradients that
add up over steps, a recompilation for each new weight, a drift that a single step is too short to show; and weights
that are saved and loaded (``module_state``): left out, replaced, or met by nobody.
"""

from __future__ import annotations

import torch

from cases.module_state import module_state
from cases.toy_linear import flat, linears_of, rows_of
from harness.program import Case, CaseContext, Expects, Program

STEPS = 10
# A power of two: the step's size is exact in every dtype, so that eager and compiled differ by their gradients alone.
# Large enough to move a bf16 weight of this size, small enough for the weights to stay of their own size.
LEARNING_RATE = 2.0**-6


def descend(model: torch.nn.Module) -> None:
    """Plain gradient descent, with each gradient scaled to the size of its weight: data of any magnitude may come."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                size = parameter.abs().mean() / parameter.grad.abs().mean().clamp(min=1e-30)
                parameter.sub_(LEARNING_RATE * size * parameter.grad)


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears in one region, and an update of their weights after each step."""
    layers = linears_of(ctx, 2)
    recipe, autocast = ctx.axes.recipe, ctx.provider.autocast

    forward = flat(autocast, layers)

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=rows_of(ctx),
        update=descend,
        expects=Expects(fp8_linears=(recipe.label,) * 2, steps=STEPS),
        probes=module_state(ctx),
    )


CASE = Case(
    name="multi_step",
    build=build,
    catches="weights, scales or gradients of an earlier step, and a recompilation for each new weight",
    answers=(
        "NVIDIA/TransformerEngine#1047",
        "NVIDIA/TransformerEngine#1190",
        "pytorch/pytorch#150859",
        "pytorch/pytorch#128319",
    ),
)
