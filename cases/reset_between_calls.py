"""The library's state is reset while compiled code goes on being called: between calls, in an open region, in the
graph.

Catches: an exit that counts down instead of putting back what was there (a reset in between, and the depth is -1); a
reset that puts a new object in the place of one that compiled code, a caller or a captured CUDA graph still holds; a
reset after which everything is compiled again.

A reset is in force until the next exit: leaving a region puts back what held before it, whatever was reset inside
(NVIDIA/TransformerEngine#2759). Identities (the state, its containers, the skip tensors) are compared over every reset
by the harness itself. Delayed scaling has no program here: its scales belong to the layers, which a reset of the
process's state does not reach.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cases.toy_linear import STEPS, bare, flat, linears_of, rows_of
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects, features_of, lacks
from harness.providers.protocol import Provider
from harness.run.host import device_for, host_arch
from harness.types import Axes

REPLAYS = 3


def _between(ctx: CaseContext) -> Program:
    """Two calls a step with a reset between them: the first one of all compiles, so the next is between compilation
    and call. One graph: a reset changes nothing that a guard looks at."""
    layers = linears_of(ctx, 2)
    autocast = ctx.provider.autocast

    forward = flat(autocast, layers)

    def drive(step: Step) -> torch.Tensor:
        before = step.forward(step.recipes, *step.inputs)
        step.reset()
        step.unchanged("after a reset between two calls")
        return before + step.forward(step.recipes, *step.inputs)

    return _program(ctx, layers, forward, StepExpects((ctx.axes.recipe.label,) * 4), drive)


def _inside(ctx: CaseContext) -> Program:
    """The region is around what is compiled, and reset inside: what follows the inner exit runs in the outer recipe.

    Two graphs, one for each setting in which the layers are called.
    """
    layers = linears_of(ctx, 2)
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    autocast = ctx.provider.autocast

    forward = bare(layers)

    def drive(step: Step) -> torch.Tensor:
        with autocast(enabled=True, recipe=step.recipes[0]):
            with autocast(enabled=True, recipe=step.recipes[1]):
                inside = step.forward(step.recipes, *step.inputs)
                step.reset()
                step.unchanged("after a reset inside two regions")  # as outside of any
            after = step.forward(step.recipes, *step.inputs)
        step.unchanged("after regions that were reset inside")
        return inside + after

    stated = StepExpects((inner.label,) * 2 + (outer.label,) * 2)
    return _program(ctx, layers, forward, stated, drive, graphs=2)


def _traced(ctx: CaseContext) -> Program:
    """The reset stands in the compiled function, in an open region: one graph, and the next region works."""
    layers = linears_of(ctx, 2)
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    autocast, reset = ctx.provider.autocast, features_of(ctx.provider)["reset_state"]

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            reset()
        with autocast(enabled=True, recipe=recipes[1]):
            return layers[1](x)  # type: ignore[no-any-return]

    return _program(ctx, layers, forward, StepExpects((outer.label, inner.label)))


def _replay(ctx: CaseContext) -> Program:
    """CUDA only: a graph of the region is captured, the state is reset, the graph is replayed (see the probes)."""
    layers = linears_of(ctx, 1)
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[0](x)  # type: ignore[no-any-return]

    return _program(ctx, layers, forward, StepExpects((ctx.axes.recipe.label,)), probes=replay_facts)


def _program(
    ctx: CaseContext,
    layers: torch.nn.ModuleList,
    forward: Callable[..., torch.Tensor],
    stated: StepExpects,
    drive: Callable[[Step], torch.Tensor] | None = None,
    *,
    graphs: int = 1,
    probes: Callable[[Probing], None] | None = None,
) -> Program:
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        drive=drive,
        expects=Expects(schedule=(stated,), steps=STEPS, graphs=graphs, recompiles=graphs - 1),
        probes=probes,
    )


def replay_facts(probing: Probing) -> None:
    """Capture a region without gradients, reset, replay with other inputs: each replay computes what eager does."""
    provider, (rows, columns, out) = probing.provider, probing.axes.shape
    with torch.random.fork_rng(), torch.no_grad():
        layer = provider.linear(columns, out, bias=True, dtype=probing.dtype, device=probing.device)
        held = torch.zeros(rows, columns, dtype=probing.dtype, device=probing.device)

        def region(x: torch.Tensor) -> torch.Tensor:
            with provider.autocast(enabled=True, recipe=provider.recipe(probing.axes.recipe)):
                y: torch.Tensor = layer(x)
            return y

        graph, result = _captured(region, held)
        drawn = torch.Generator().manual_seed(probing.axes.seed)  # its own: torch's generators are compared too
        with probing.part("after a reset between capture and replay"):
            provider.reset()
            for index in range(REPLAYS):
                held.copy_(torch.randn(held.shape, generator=drawn) * 2.0**index)
                graph.replay()
                same = torch.equal(result, region(held))
                probing.fact(f"replay {index + 1} after the reset has the bits of eager", True, same)


def _captured(
    region: Callable[[torch.Tensor], torch.Tensor], held: torch.Tensor
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A CUDA graph of ``region`` on the tensor ``held``, and where its replays put their result."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        region(held)  # kernels are loaded and memory is found before anything is captured
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = region(held)
    return graph, result


_BUILD = {"between": _between, "inside": _inside, "traced": _traced, "replay": _replay}


def build(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.variant``."""
    return _BUILD[ctx.axes.variant](ctx)


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """``replay`` needs a GPU; ``traced`` real tensors, and a reset that is a plain function."""
    if axes.variant == "replay" and device_for(arch).type != "cuda":
        return f"no CUDA graph to capture and replay on {arch} here: variant between is its part on the CPU"
    if axes.variant != "traced":
        return ""
    if arch not in ("cpu", host_arch()):
        return f"a reset in the graph writes the state's own tensors, which a trace for {arch} on fake ones can't hold"
    return lacks(provider, "reset_state")


CASE = Case(
    name="reset_between_calls",
    build=build,
    catches="a region's exit that counts instead of restoring, objects swapped by a reset, graphs multiplied by it",
    answers=("NVIDIA/TransformerEngine#2759", "NVIDIA/TransformerEngine#3130"),
    unavailable=unavailable,
)
