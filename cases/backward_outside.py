"""Backward runs where the forward's region is not: in another one, in a disabled one, compiled, or a second time.

Catches: a backward that takes the recipe of the region that is open when it runs, or none where FP8 is off by then
(pytorch/pytorch#190578: an operator that reads the region at run time sees the one of backward); a layer that keeps the
recipe of its latest forward, so that a later forward changes the gradients of an earlier one; operands that the first
of two backward passes uses up; a backward that compiled autograd can't trace (pytorch/pytorch#138215).

``other_region``, ``disabled_region``: backward runs in a region of the inner recipe, in a disabled one.
``overtaken``: between forward and backward the same layers run again, without gradients, in the inner recipe.
``twice``: backward runs twice over the same graph, gradients add up; donated buffers are off there, as
Inductor wants it where a graph is kept. ``compiled_autograd``: the compiled program's backward runs under torch's
compiled autograd.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cases.refusals import delayed_refusal
from cases.toy_linear import HISTORY_STEPS, STEPS, flat, linears_of, rows_of
from harness import torch_compat
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects

AroundBackward = Callable[[Step, Callable[[], None]], None]
LAYERS = 2


def _around_backward(ctx: CaseContext) -> AroundBackward | None:
    autocast = ctx.provider.autocast

    def in_region(step: Step, backward: Callable[[], None]) -> None:
        with autocast(enabled=True, recipe=step.recipes[1]):
            backward()

    def where_it_is_off(step: Step, backward: Callable[[], None]) -> None:
        del step
        with autocast(enabled=False):
            backward()

    def twice(step: Step, backward: Callable[[], None]) -> None:
        del step
        backward()
        backward()

    def compiled(step: Step, backward: Callable[[], None]) -> None:
        if not step.compiled:
            backward()
            return
        with torch_compat.compiled_autograd(ctx.axes.backend):
            backward()

    variants: dict[str, AroundBackward] = {
        "other_region": in_region,
        "disabled_region": where_it_is_off,
        "twice": twice,
        "compiled_autograd": compiled,
    }
    return variants.get(ctx.axes.variant)


def _overtaken(step: Step) -> torch.Tensor:
    """The step's forward, and another one after it that takes no part in backward."""
    output = step.forward(step.recipes, *step.inputs)
    with torch.no_grad():
        step.forward(step.recipes[::-1], *step.inputs)
    return output


def _captures(ctx: CaseContext, forward: Callable[..., torch.Tensor]) -> Callable[[Probing], None]:
    """Compiled autograd is silent where it isn't on: that it took a whole backward is counted."""

    def probes(probing: Probing) -> None:
        compiled = torch.compile(forward, backend=ctx.axes.backend, fullgraph=ctx.axes.fullgraph)
        (x,) = rows_of(ctx)(torch.Generator().manual_seed(ctx.axes.seed))
        y = compiled((ctx.provider.recipe(ctx.axes.recipe),), x)
        before = torch_compat.compiled_autograd_captures()
        with torch_compat.compiled_autograd(ctx.axes.backend):
            torch.autograd.backward(y, torch.ones_like(y))
        probing.fact(
            "backward passes that compiled autograd captured", 1, torch_compat.compiled_autograd_captures() - before
        )
        probing.fact("the input has a gradient", True, x.grad is not None)

    return probes


def _expects(ctx: CaseContext) -> Expects:
    outer, inner = (ctx.axes.recipe.label,) * LAYERS, ((ctx.inner or ctx.axes.recipe).label,) * LAYERS
    variant = ctx.axes.variant
    of = {
        "twice": StepExpects(outer, dgrad=2 * outer, wgrad=2 * outer),
        "overtaken": StepExpects(outer + inner, dgrad=outer, wgrad=outer),
    }
    overtaken = variant == "overtaken"
    return Expects(
        schedule=(of.get(variant, StepExpects(outer)),),
        steps=HISTORY_STEPS if ctx.axes.recipe.name == "delayed_scaling" else STEPS,
        # The other recipe, without gradients, is another graph, and has no backward.
        graphs=2 if overtaken else 1,
        recompiles=1 if overtaken else 0,
        backward_graphs=1,
        raises=delayed_refusal(ctx),
    )


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears in one region."""
    layers = linears_of(ctx, LAYERS)
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    autocast = ctx.provider.autocast
    compiles = delayed_refusal(ctx) is None

    forward = flat(autocast, layers)
    twice = ctx.axes.variant == "twice"

    return Program(
        model=layers,
        forward=forward,
        drive=_overtaken if ctx.axes.variant == "overtaken" else None,
        around_backward=_around_backward(ctx),
        passes=2 if twice else 1,
        settings={"functorch.donated_buffer": False} if twice else {},
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        probes=_captures(ctx, forward) if compiles and ctx.axes.variant == "compiled_autograd" else None,
        expects=_expects(ctx),
    )


CASE = Case(
    name="backward_outside",
    build=build,
    catches="a backward in the recipe of another region or of a later forward, operands that a first backward uses up",
    answers=("pytorch/pytorch#190578", "pytorch/pytorch#138215"),
)
