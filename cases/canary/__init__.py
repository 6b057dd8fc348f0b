"""What the harness knows of torch.compile, asked again of the torch that is installed: every fact by its name.

Catches: an upgrade of torch that changes what a signal means. The judge's checks rest on these facts (which counter is
blind to what, how an error surfaces, what costs a graph); when one of them changes, this case says which, before a
hundred cells turn red or, worse, stay green. Facts that differ between versions carry the versions
(cases/canary/table.py).

The facts are torch's, so one recipe is enough, and backend and fullgraph change nothing about them: give it one cell.
"""

from __future__ import annotations

import torch

from cases.canary.ground import Ground, Holder, State
from cases.canary.table import FACTS
from cases.toy_linear import STEPS, flat, linears_of, rows_of
from harness.observe.census import reset_compiler
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program
from harness.providers.protocol import Provider
from harness.types import Axes


def build(ctx: CaseContext) -> Program:
    """Two layers in a region: what the facts are about, working."""
    layers, autocast = linears_of(ctx, 2), ctx.provider.autocast

    forward = flat(autocast, layers)

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(ctx.axes.recipe),),
        make_inputs=rows_of(ctx),
        expects=Expects((ctx.axes.recipe.label,) * 2, steps=STEPS),
        probes=replay,
    )


def replay(probing: Probing) -> None:
    """Every fact once, each from a clean state; an exception where none belongs is what the fact then says."""
    with torch.random.fork_rng():
        sizes = ((128, 256), (256, 128))
        layers = torch.nn.ModuleList(
            probing.provider.linear(a, b, bias=False, dtype=torch.bfloat16, device=probing.device) for a, b in sizes
        )
    ground = Ground(probing.provider, probing.device, layers)
    for fact in FACTS:
        Holder.state = State()
        with probing.part(f"after the fact: {fact.name}"):
            try:
                seen = fact.ask(ground)
            except Exception as error:
                seen = f"raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            probing.fact(f"{fact.name} ({fact.source})", fact.expected(torch.__version__), seen)
    reset_compiler()


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """Asked of the reference alone: libraries of their own kind of region and layer would be other facts."""
    del axes, arch
    return "" if provider.name == "reference" else "the facts are torch's, and the reference's cell asks for them"


CASE = Case(
    name="canary",
    build=build,
    catches="an upgrade of torch that changes what a signal means, by name",
    answers=(
        "pytorch/pytorch#150477",
        "pytorch/pytorch#110730",
        "pytorch/pytorch#161790",
        "pytorch/pytorch#110107",
        "pytorch/pytorch#190578",
        "pytorch/pytorch#128437",
        "pytorch/pytorch#138215",
        "pytorch/pytorch#166589",
    ),
    unavailable=unavailable,
)
