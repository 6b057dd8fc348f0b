"""FP8 regions and ``torch.autocast`` around and inside each other, with float32 parameters and inputs.

Catches: FP8 that is left out under torch's own autocast; products that are computed, or gradients that are rounded, in
another dtype than eager's; torch's autocast nesting, dtype or switch that an FP8 region leaves changed
(pytorch/pytorch#195488 is the state that leaks, in torch's own region); a compiled backward that takes the autocast of
the moment for its forward's.

``around``: torch.autocast is opened around the compiled call. ``inside``: in the compiled function, around the region.
``in_region``: in the compiled function, inside the region. ``backward_under``: around the call, and around backward.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cases.refusals import delayed_refusal
from cases.toy_linear import HISTORY_STEPS, STEPS
from harness.data import draw
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, Step
from harness.providers.protocol import Provider
from harness.types import Axes

Forward = Callable[..., torch.Tensor]
FP8_LAYERS = 2  # a third one stands outside of the region, in torch's own low precision


def _layers(ctx: CaseContext) -> torch.nn.ModuleList:
    _, inputs, outputs = ctx.axes.shape
    sizes = ((inputs, outputs), (outputs, inputs), (inputs, outputs))
    make = ctx.provider.linear
    return torch.nn.ModuleList(make(a, b, bias=True, dtype=torch.float32, device=ctx.device) for a, b in sizes)


def _forward(ctx: CaseContext, layers: torch.nn.ModuleList) -> Forward:
    autocast, device, dtype = ctx.provider.autocast, ctx.device.type, ctx.dtype

    def plain(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[1](layers[0](x))
        return layers[2](x)  # type: ignore[no-any-return]

    def inside(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype=dtype):
            return plain(recipes, x)

    def in_region(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]), torch.autocast(device, dtype=dtype):
            x = layers[1](layers[0](x))
        with torch.autocast(device, dtype=dtype):
            return layers[2](x)  # type: ignore[no-any-return]

    return {"inside": inside, "in_region": in_region}.get(ctx.axes.variant, plain)


def _drive(ctx: CaseContext) -> Callable[[Step], torch.Tensor] | None:
    if ctx.axes.variant in ("inside", "in_region"):
        return None
    device, dtype = ctx.device.type, ctx.dtype

    def drive(step: Step) -> torch.Tensor:
        with torch.autocast(device, dtype=dtype):
            return step.forward(step.recipes, *step.inputs)

    return drive


def _around_backward(ctx: CaseContext) -> Callable[[Step, Callable[[], None]], None] | None:
    if ctx.axes.variant != "backward_under":
        return None
    device, dtype = ctx.device.type, ctx.dtype

    def around_backward(step: Step, backward: Callable[[], None]) -> None:
        del step
        with torch.autocast(device, dtype=dtype):
            backward()

    return around_backward


def _probes(ctx: CaseContext, program: Callable[[], Program]) -> Callable[[Probing], None]:
    """The dtypes that users see: results in torch.autocast's, gradients in those of their tensors."""

    def probes(probing: Probing) -> None:
        of = program()
        forwards = {"eager": of.forward}
        if ctx.axes.recipe.name != "delayed_scaling":
            forwards["compiled"] = torch.compile(of.forward, backend=ctx.axes.backend, fullgraph=ctx.axes.fullgraph)
        for how, forward in forwards.items():
            (x,) = of.make_inputs(torch.Generator().manual_seed(ctx.axes.seed))
            y = of.run(Step(0, forward, of.recipes(), (x,)))
            grads = torch.autograd.grad(y, [x, *of.model.parameters()], torch.ones_like(y))
            probing.fact(f"{how}, dtype of the output", ctx.dtype, y.dtype)
            probing.fact(f"{how}, dtypes of the gradients", {torch.float32}, {grad.dtype for grad in grads})

    return probes


def build(ctx: CaseContext) -> Program:
    """Three float32 linears, two of them in a region."""
    layers = _layers(ctx)
    recipe = ctx.axes.recipe
    rows, width, _ = ctx.axes.shape

    def make_inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        # Values that torch.autocast's dtype holds: what is quantised are the bits of the input.
        x = draw(ctx.axes.data, (rows, width), generator, ctx.dtype, ctx.device)
        return (x.to(torch.float32).requires_grad_(True),)

    program = Program(
        model=layers,
        forward=_forward(ctx, layers),
        drive=_drive(ctx),
        around_backward=_around_backward(ctx),
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=make_inputs,
        expects=Expects(
            fp8_linears=(recipe.label,) * FP8_LAYERS,
            steps=HISTORY_STEPS if recipe.name == "delayed_scaling" else STEPS,
            raises=delayed_refusal(ctx),
        ),
        probes=_probes(ctx, lambda: program),
    )
    return program


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """torch.autocast computes in half precision."""
    del provider, arch
    return "torch.autocast has no float32" if axes.dtype == "float32" else ""


CASE = Case(
    name="amp",
    build=build,
    catches="FP8 left out under torch.autocast, gradients in another dtype than eager's, torch's autocast left changed",
    answers=("pytorch/pytorch#195488",),
    unavailable=unavailable,
)
