"""The region is opened around a compiled module, and its setting is toggled from call to call.

Catches: a guard that is lost, so that a graph of one setting runs under another; a guard too many, so that a setting
seen before is compiled again; one setting's recipe baked into the other's graph; FP8 that stays on outside.
"""

from __future__ import annotations

import torch

from cases.toy_linear import bare, linears_of, rows_of
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects

# A, B, A, off, A: each setting is met again after another one, and the judged numerics end on a setting with FP8.
SETTINGS = ("outer", "inner", "outer", "off", "outer")


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears; the region is outside of what is compiled."""
    layers = linears_of(ctx, 2)
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    labels = {"outer": (outer.label,) * 2, "inner": (inner.label,) * 2, "off": ()}
    autocast = ctx.provider.autocast

    forward = bare(layers)

    def drive(step: Step) -> torch.Tensor:
        setting = SETTINGS[step.index % len(SETTINGS)]
        if setting == "off":
            return step.forward(step.recipes, *step.inputs)
        with autocast(enabled=True, recipe=step.recipes[setting == "inner"]):
            return step.forward(step.recipes, *step.inputs)

    distinct = len(set(SETTINGS))
    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        drive=drive,
        expects=Expects(
            schedule=tuple(StepExpects(labels[setting]) for setting in SETTINGS),
            steps=len(SETTINGS),
            graphs=distinct,
            recompiles=distinct - 1,
        ),
    )


CASE = Case(
    name="autocast_outside",
    build=build,
    catches="a graph of one setting that runs under another, and a setting that is compiled twice",
    answers=(
        "pytorch/pytorch#169253",
        "pytorch/pytorch#128437",
        "pytorch/pytorch#128319",
        "NVIDIA/TransformerEngine#308",
    ),
)
