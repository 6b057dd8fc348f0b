"""Batches of several sizes: in turn, marked dynamic, of one element, off the recipe's alignment.

Catches: a recompilation for each new batch, a scale or a shape baked into a graph that other batches use, a batch off
alignment that is computed wrongly, or refused under compile in other words than in eager.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cases.toy_linear import Layers, linears_of
from harness import torch_compat
from harness.data import draw
from harness.probing import Probing, documented
from harness.program import Case, CaseContext, Expects, Program, Step

STEPS = 3
# Batch i has this many times the rows (or, for batch_one, elements) of the cell's shape.
SIZES = {"varying": (1, 2, 3), "marked": (1, 2, 3), "batch_one": (1, 2, 3), "misaligned": (1, 1, 1)}
# Forward graphs: a first one for the very sizes of the first batch, a second one for any (torch's automatic dynamic
# shapes). A size of one is never dynamic (0/1 specialisation), so batch_one needs both even when asked for dynamic.
GRAPHS = {"varying": 2, "marked": 1, "batch_one": 2, "misaligned": 1}
DYNAMIC_GRAPHS = {"varying": 1, "marked": 1, "batch_one": 2, "misaligned": 1}

# In the words of whichever library: "needs a multiple of 16", "to be divisible by 8".
MISALIGNED = "multiple of|divisible by"


def _marking(step: Step) -> torch.Tensor:
    for tensor in step.inputs:
        torch_compat.mark_dynamic(tensor, 0)
    return step.forward(step.recipes, *step.inputs)


def _refused_in_between(ctx: CaseContext, forward: Callable[..., torch.Tensor]) -> Callable[[Probing], None]:
    """Batches whose rows no recipe takes fail by their own text, leave no state and cost the good ones no graph.

    A call that fails while it is compiled keeps nothing, so each compiles again: that is why these are probes.
    """
    rows, in_features, _ = ctx.axes.shape

    def probes(probing: Probing) -> None:
        x = torch.ones(2 * rows, in_features, dtype=ctx.dtype, device=ctx.device)
        compiled = torch.compile(forward, backend=ctx.axes.backend, fullgraph=ctx.axes.fullgraph)
        for name, run in (("eager", forward), ("compiled", compiled)):
            with probing.part(f"after refused batches, {name}"):
                recipe = ctx.provider.recipe(ctx.axes.recipe)
                before = run((recipe,), x[:rows])
                for wrong in (rows - 1, rows + 1):
                    with documented("Exception", MISALIGNED, f"{wrong} rows, {name}"):
                        run((recipe,), x[:wrong])
                with torch.compiler.set_stance("fail_on_recompile"):
                    after = run((recipe,), x[:rows])
                probing.fact(f"result after refused batches, {name}", "the same", _same(before, after))

    return probes


def _same(one: torch.Tensor, other: torch.Tensor) -> str:
    return "the same" if torch.equal(one, other) else "another"


def _inputs(ctx: CaseContext, sizes: tuple[int, ...]) -> Callable[[torch.Generator, int], tuple[torch.Tensor, ...]]:
    rows, in_features, _ = ctx.axes.shape

    def inputs_at(generator: torch.Generator, index: int) -> tuple[torch.Tensor, ...]:
        size = sizes[index % len(sizes)]
        shape = (size, rows, in_features) if ctx.axes.variant == "batch_one" else (size * rows, in_features)
        return (draw(ctx.axes.data, shape, generator, ctx.dtype, ctx.device).requires_grad_(True),)

    return inputs_at


def _forward(ctx: CaseContext, layers: Layers) -> Callable[..., torch.Tensor]:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[1](layers[0](x))  # type: ignore[no-any-return]

    return forward


def build(ctx: CaseContext) -> Program:
    """Build the program of ``ctx.axes.variant``."""
    variant, recipe = ctx.axes.variant, ctx.axes.recipe
    layers = linears_of(ctx, 2)
    forward = _forward(ctx, layers)
    inputs_at = _inputs(ctx, SIZES[variant])
    graphs = (DYNAMIC_GRAPHS if ctx.axes.dynamic else GRAPHS)[variant]
    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=lambda generator: inputs_at(generator, 0),
        inputs_at=inputs_at,
        drive=_marking if variant == "marked" else None,
        probes=_refused_in_between(ctx, forward) if variant == "misaligned" else None,
        expects=Expects(fp8_linears=(recipe.label,) * 2, steps=STEPS, graphs=graphs, recompiles=graphs - 1),
    )


CASE = Case(
    name="dynamic_shapes",
    build=build,
    catches="a recompilation for each batch, sizes baked into a graph, batches off alignment that are not refused",
    answers=("pytorch/pytorch#129521", "pytorch/pytorch#161127", "NVIDIA/TransformerEngine#2157"),
)
