"""Batches of several sizes: in turn, marked dynamic, of one element, off the recipe's alignment.

Catches: a recompilation for each new batch, a scale or a shape baked into a graph that other batches use, a batch off
alignment that is computed wrongly, refused under compile in other words than in eager, or in words that name another
dimension or another value.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cases.toy_linear import linears_of
from cases.ways import ways
from harness import torch_compat
from harness.data import draw
from harness.probing import Probing, documented
from harness.program import Case, CaseContext, Expects, Program, Step, features_of

STEPS = 3
# Batch i has this many times the rows (or, for batch_one, elements) of the cell's shape.
SIZES = {"varying": (1, 2, 3), "marked": (1, 2, 3), "batch_one": (1, 2, 3), "misaligned": (1, 1, 1)}
# Forward graphs: a first one for the very sizes of the first batch, a second one for any (torch's automatic dynamic
# shapes). A size of one is never dynamic (0/1 specialisation), so batch_one needs both even when asked for dynamic.
GRAPHS = {"varying": 2, "marked": 1, "batch_one": 2, "misaligned": 1}
DYNAMIC_GRAPHS = {"varying": 1, "marked": 1, "batch_one": 2, "misaligned": 1}

# Beside a multiple of 16 no recipe takes it, on any hardware.
ODD = 4
# In the words of whichever library: "needs a multiple of 16", "to be divisible by 8".
MISALIGNED = "multiple of|divisible by"


def _misaligned(ctx: CaseContext, dimension: str, value: int) -> str:
    """What the refusal of ``value`` must say: a provider that says which dimension it refuses (feature
    ``names_misaligned``: its words for one) is held to naming this one and its value."""
    named = features_of(ctx.provider).get("names_misaligned")
    return MISALIGNED if named is None else named(dimension, value)


def _marking(step: Step) -> torch.Tensor:
    for tensor in step.inputs:
        torch_compat.mark_dynamic(tensor, 0)
    return step.forward(step.recipes, *step.inputs)


def _refused(ctx: CaseContext, forward: Callable[..., torch.Tensor]) -> Callable[[Probing], None]:
    """Sizes that no recipe takes fail by their own text and leave no state, and batches between good ones cost those no
    graph.

    A call that fails while it is compiled keeps nothing, so each compiles again: that is why these are probes.
    """
    in_between = _refused_in_between(ctx, forward)
    odd = _odd_layers(ctx)  # made with the program: initialising a layer draws random numbers

    def probes(probing: Probing) -> None:
        in_between(probing)
        for dimension, layer in odd.items():
            _refused_layer(ctx, probing, dimension, layer)

    return probes


def _odd_layers(ctx: CaseContext) -> dict[str, torch.nn.Module]:
    """Layers of which one dimension, the one that names them, is what no recipe takes."""
    _, in_features, out_features = ctx.axes.shape
    sizes = {"in_features": (in_features + ODD, out_features), "out_features": (in_features, out_features + ODD)}
    return {
        dimension: ctx.provider.linear(a, b, bias=False, dtype=ctx.dtype, device=ctx.device)
        for dimension, (a, b) in sizes.items()
    }


def _refused_layer(ctx: CaseContext, probing: Probing, dimension: str, layer: torch.nn.Module) -> None:
    """The layer is refused in FP8, eager and compiled, and computes outside."""
    (weight,) = layer.parameters()
    x = torch.ones(ctx.axes.shape[0], weight.shape[1], dtype=ctx.dtype, device=ctx.device)
    for name, run in ways(ctx, _region(ctx, layer)):
        with probing.part(f"after a layer with {dimension} off alignment, {name}"):
            wanted = _misaligned(ctx, dimension, weight.shape[dimension == "in_features"])
            with documented("Exception", wanted, f"{dimension} off alignment, {name}"):
                run((ctx.provider.recipe(ctx.axes.recipe),), x)
            probing.fact(f"width outside, {dimension}, {name}", weight.shape[0], layer(x).shape[1])


def _refused_in_between(ctx: CaseContext, forward: Callable[..., torch.Tensor]) -> Callable[[Probing], None]:
    rows, in_features, _ = ctx.axes.shape

    def probes(probing: Probing) -> None:
        x = torch.ones(2 * rows, in_features, dtype=ctx.dtype, device=ctx.device)
        for name, run in ways(ctx, forward):
            with probing.part(f"after refused batches, {name}"):
                recipe = ctx.provider.recipe(ctx.axes.recipe)
                before = [run((recipe,), batch) for batch in (x[:rows], x)]  # the second makes a graph of any size
                for wrong in (rows - 1, rows + 1):
                    with documented("Exception", _misaligned(ctx, "rows", wrong), f"{wrong} rows, {name}"):
                        run((recipe,), x[:wrong])
                with torch.compiler.set_stance("fail_on_recompile"):
                    after = [run((recipe,), batch) for batch in (x[:rows], x)]
                moving = ctx.axes.recipe.name == "delayed_scaling"  # scales of a later step are others
                same = moving or all(map(torch.equal, before, after))
                probing.fact(f"result after refused batches, {name}", "the same", "the same" if same else "another")

    return probes


def _inputs(ctx: CaseContext, sizes: tuple[int, ...]) -> Callable[[torch.Generator, int], tuple[torch.Tensor, ...]]:
    rows, in_features, _ = ctx.axes.shape

    def inputs_at(generator: torch.Generator, index: int) -> tuple[torch.Tensor, ...]:
        size = sizes[index % len(sizes)]
        shape = (size, rows, in_features) if ctx.axes.variant == "batch_one" else (size * rows, in_features)
        return (draw(ctx.axes.data, shape, generator, ctx.dtype, ctx.device).requires_grad_(True),)

    return inputs_at


def _region(ctx: CaseContext, model: torch.nn.Module) -> Callable[..., torch.Tensor]:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return model(x)  # type: ignore[no-any-return]

    return forward


def build(ctx: CaseContext) -> Program:
    """Build the program of ``ctx.axes.variant``."""
    variant, recipe = ctx.axes.variant, ctx.axes.recipe
    layers = linears_of(ctx, 2)
    forward = _region(ctx, torch.nn.Sequential(*layers))
    inputs_at = _inputs(ctx, SIZES[variant])
    graphs = (DYNAMIC_GRAPHS if ctx.axes.dynamic else GRAPHS)[variant]
    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=lambda generator: inputs_at(generator, 0),
        inputs_at=inputs_at,
        drive=_marking if variant == "marked" else None,
        probes=_refused(ctx, forward) if variant == "misaligned" else None,
        expects=Expects(fp8_linears=(recipe.label,) * 2, steps=STEPS, graphs=graphs, recompiles=graphs - 1),
    )


CASE = Case(
    name="dynamic_shapes",
    build=build,
    catches="a recompilation for each batch, sizes baked into a graph, batches off alignment that are not refused",
    answers=("pytorch/pytorch#129521", "pytorch/pytorch#161127"),
)
