"""The region's context object is made in one place and entered in another: passed into compiled code, used as
decorator, made before another region and entered inside it, entered twice.

Catches: a region that remembers the state of the moment when it was made and puts that back on exit; a decorated
function that breaks the graph; an object that is entered a second time and leaves half a region.

What torch.compile does with an object that it did not see being made is documented here, not wished for: Unsupported
under fullgraph=True, and a silent fallback without it (the frame runs eagerly, its layers are compiled one by one). A
context manager of contextlib can be entered once; the second time it raises AttributeError, before any state is
written. A provider whose objects can be entered again (feature ``reusable_autocast``) refuses one that is still open,
with RuntimeError, and must restore after each use; one whose regions are no decorators (without the feature
``decorating_autocast``) has no program for that variant. Delayed scaling has no program here: what refuses it comes
before what refuses the object, or after, by torch version.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from cases.toy_linear import STEPS, bare, linears_of, rows_of
from harness.probing import documented
from harness.program import Case, CaseContext, Expects, Program, Step, features_of, lacks
from harness.providers.protocol import Provider
from harness.types import Axes, Raises

Forward = Callable[..., torch.Tensor]

# Dynamo's words for an object whose making it has not traced, on 2.11 and 2.13, and on 2.14.
REFUSAL = Raises("Unsupported", "Unsupported context manager|Unexpected type in sourceless builder", "compile")


def _object(ctx: CaseContext) -> Program:
    """Made inside another region, entered outside of it by the compiled function that it is passed to.

    Without fullgraph: two frames run eagerly, the program's and the generator's behind the region; one break site; each
    layer is a graph of its own (they differ in shape, so the second recompiles the first one's code).
    """
    layers, autocast = linears_of(ctx, 2), ctx.provider.autocast

    def forward(given: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        with given[0]:
            return layers[1](layers[0](x))  # type: ignore[no-any-return]

    def drive(step: Step) -> torch.Tensor:
        outer, inner = step.recipes
        with autocast(enabled=True, recipe=inner):
            hoisted = autocast(enabled=True, recipe=outer)
        return step.forward((hoisted,), *step.inputs)

    labels = (ctx.axes.recipe.label,) * 2
    if ctx.axes.fullgraph:
        return _program(ctx, layers, forward, Expects(labels, steps=STEPS, raises=REFUSAL), drive)
    fallback = Expects(labels, steps=STEPS, graphs=2, recompiles=1, graph_breaks=1, eager_frames=2)
    return _program(ctx, layers, forward, fallback, drive)


def _late(ctx: CaseContext) -> Program:
    """Made at the top of the compiled function, entered inside another region: one graph, and the exit puts back that
    region, not what held where the object was made."""
    layers, autocast = linears_of(ctx, 3), ctx.provider.autocast

    def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        hoisted = autocast(enabled=True, recipe=recipes[1])
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with hoisted:
                x = layers[1](x)
            return layers[2](x)  # type: ignore[no-any-return]

    outer, inner = _labels(ctx)
    return _program(ctx, layers, forward, Expects((outer, inner, outer), steps=STEPS))


def _decorator(ctx: CaseContext) -> Program:
    """Two decorated functions, one decorated when the program was built and one while it is traced: one graph."""
    layers, autocast = linears_of(ctx, 2), ctx.provider.autocast

    @autocast(enabled=True, recipe=ctx.provider.recipe(ctx.axes.recipe))  # type: ignore[operator]
    def first(x: torch.Tensor) -> torch.Tensor:
        return layers[0](x)  # type: ignore[no-any-return]

    def second(x: torch.Tensor) -> torch.Tensor:
        return layers[1](x)  # type: ignore[no-any-return]

    def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        decorated = autocast(enabled=True, recipe=recipes[1])(second)  # type: ignore[operator]
        return decorated(first(x))  # type: ignore[no-any-return]

    return _program(ctx, layers, forward, Expects(_labels(ctx), steps=STEPS))


def _twice(ctx: CaseContext) -> Program:
    """One object entered again, inside its region and after it: refused, and the open region stays in force."""
    layers, autocast = linears_of(ctx, 2), ctx.provider.autocast
    reusable = "reusable_autocast" in features_of(ctx.provider)
    refusal = ("RuntimeError", "entered more than once") if reusable else ("AttributeError", "args")

    forward = bare(layers)

    def drive(step: Step) -> torch.Tensor:
        hoisted = autocast(enabled=True, recipe=step.recipes[0])
        with hoisted:
            with documented(*refusal, "a second entry inside the region"), hoisted:
                pass
            y = step.forward(step.recipes, *step.inputs)
        step.unchanged("after a second entry inside the region")
        again = nullcontext() if reusable else documented(*refusal, "a second entry after the region")
        with again, hoisted:
            pass
        step.unchanged("after a second entry after the region")
        return y

    return _program(ctx, layers, forward, Expects((ctx.axes.recipe.label,) * 2, steps=STEPS), drive)


def _labels(ctx: CaseContext) -> tuple[str, str]:
    return ctx.axes.recipe.label, (ctx.inner or ctx.axes.recipe).label


def _program(
    ctx: CaseContext,
    layers: torch.nn.ModuleList,
    forward: Forward,
    expects: Expects,
    drive: Callable[[Step], torch.Tensor] | None = None,
) -> Program:
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        drive=drive,
        expects=expects,
    )


_BUILD = {"object": _object, "late": _late, "decorator": _decorator, "twice": _twice}


def build(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.variant``."""
    return _BUILD[ctx.axes.variant](ctx)


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """A provider's regions must be decorators for the variant that uses them so."""
    del arch
    return lacks(provider, "decorating_autocast") if axes.variant == "decorator" else ""


CASE = Case(
    name="hoisted",
    build=build,
    unavailable=unavailable,
    catches="a region that restores the state in which it was made, a decorator that breaks, half a region",
    answers=("pytorch/pytorch#150477", "NVIDIA/TransformerEngine#187"),
)
