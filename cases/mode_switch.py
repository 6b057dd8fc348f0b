"""One compiled module is called in every mode that training and evaluation have, in several orders, back and forth.

Catches: a graph of one mode that runs in another; a mode that is compiled anew when it comes back; FP8 that is left out
where no gradients are wanted; something that a first call under ``inference_mode`` made and that training can't use; a
gradient that is lost, or computed though nobody wants it, because an earlier call had other needs; scales that
inference moves. (NVIDIA/TransformerEngine#3316 is the shape: the first backward *after* an evaluation fails.)

A variant is an order of modes. ``train`` and ``eval`` differ by a module that asks ``self.training``; ``detached`` is
training on an input that needs no gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cases.refusals import delayed_refusal
from cases.toy_linear import linears_of, rows_of
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects

LAYERS = 2
MODES = ("train", "eval", "no_grad", "inference", "detached")
ORDERS = {
    "train_first": ("train", "eval", "no_grad", "inference", "detached"),
    "eval_first": ("eval", "detached", "inference", "train", "no_grad"),
    "no_grad_first": ("no_grad", "train", "detached", "eval", "inference"),
    "inference_first": ("inference", "no_grad", "eval", "detached", "train"),
}


class HalvedInTraining(torch.nn.Module):
    """x / 2 in training, x otherwise: exact in every dtype, and no random numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0.5 if self.training else x


def schedule_of(order: tuple[str, ...]) -> tuple[str, ...]:
    """Each mode once, then back through them: every mode meets several predecessors, and the last one is the first."""
    return (*order, *order[-2::-1])


def _expected(mode: str, label: str) -> StepExpects:
    fprop = (label,) * LAYERS
    if mode in ("no_grad", "inference"):
        return StepExpects(fprop, dgrad=(), wgrad=())
    return StepExpects(fprop, dgrad=fprop[1:]) if mode == "detached" else StepExpects(fprop)


def _drive(model: torch.nn.Module, modes: tuple[str, ...]) -> Callable[[Step], torch.Tensor]:
    def drive(step: Step) -> torch.Tensor:
        mode = modes[step.index % len(modes)]
        (x,) = step.inputs
        model.train(mode not in ("eval", "inference"))
        try:
            if mode == "inference":
                with torch.inference_mode():
                    return step.forward(step.recipes, x)
            with torch.set_grad_enabled(mode != "no_grad"):
                return step.forward(step.recipes, x.detach() if mode == "detached" else x)
        finally:
            model.train()

    return drive


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears in one region, and between them a module that tells training from evaluation."""
    layers = linears_of(ctx, LAYERS)
    half = HalvedInTraining()
    recipe = ctx.axes.recipe
    modes = schedule_of(ORDERS[ctx.axes.variant])
    autocast = ctx.provider.autocast
    model = torch.nn.ModuleList([*layers, half])

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[1](half(layers[0](x)))  # type: ignore[no-any-return]

    return Program(
        model=model,
        forward=forward,
        drive=_drive(model, modes),
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=rows_of(ctx),
        expects=Expects(
            schedule=tuple(_expected(mode, recipe.label) for mode in modes),
            steps=len(modes),
            graphs=len(MODES),
            recompiles=len(MODES) - 1,
            backward_graphs=3,  # training, evaluation with gradients, detached
            raises=delayed_refusal(ctx),
        ),
    )


CASE = Case(
    name="mode_switch",
    build=build,
    catches="a graph of another mode, a mode that is compiled twice, FP8 left out or gradients lost after a switch",
    answers=("NVIDIA/TransformerEngine#3316",),
)
