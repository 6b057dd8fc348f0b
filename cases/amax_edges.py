"""Inputs on which an amax or a scale has no ordinary value: zeros, infinities, NaN, the largest and the smallest.

Catches: a scale of infinity, zero or NaN; one zero row or block that turns a whole result into NaN; a huge value that
takes finite neighbours with it; a NaN that vanishes; an empty batch that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cases.toy_linear import Layers, linears_of
from harness.data import draw
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program
from harness.providers.protocol import TapRecord

STEPS = 2


def _zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x)


def _zero_row(x: torch.Tensor) -> torch.Tensor:
    x[x.shape[0] // 2] = 0
    return x


def _zero_block(x: torch.Tensor) -> torch.Tensor:
    """The first 128 x 128 block: whole scale blocks of every recipe, along either axis."""
    x[:128, :128] = 0
    return x


def _huge(x: torch.Tensor) -> torch.Tensor:
    """One element that leaves no other one a code but zero, where they share a scale."""
    x[3, 7] = 2.0**100 if x.dtype != torch.float16 else 2.0**14
    return x


def _tiny(x: torch.Tensor) -> torch.Tensor:
    """So small that fp8_max / amax overflows fp32 (below 448 / 3.4e38); for float16, its smallest subnormals."""
    return x * (2.0**-124 if x.dtype != torch.float16 else 2.0**-20)


def _infinite(x: torch.Tensor) -> torch.Tensor:
    x[3, 7] = float("inf")
    x[4, 7] = float("-inf")
    return x


def _nan(x: torch.Tensor) -> torch.Tensor:
    x[3, 7] = float("nan")
    return x


def _ordinary(x: torch.Tensor) -> torch.Tensor:
    return x


EDGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": _zeros,
    "zero_row": _zero_row,
    "zero_block": _zero_block,
    "huge": _huge,
    "tiny": _tiny,
}
# Results that are not finite can't be held to bounds: the program's own batches are ordinary, and probes state what
# must become of these.
UNBOUNDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"infinite": _infinite, "nan": _nan}
EMPTY = "empty"


def _forward(ctx: CaseContext, layers: Layers) -> Callable[..., torch.Tensor]:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[1](layers[0](x))  # type: ignore[no-any-return]

    return forward


def _empty_batch(ctx: CaseContext, layers: Layers, forward: Callable[..., torch.Tensor]) -> Callable[[Probing], None]:
    """An empty batch gives an empty result and gradients of zero, compiled as in eager."""
    _, in_features, _ = ctx.axes.shape

    def probes(probing: Probing) -> None:
        compiled = torch.compile(forward, backend=ctx.axes.backend, fullgraph=ctx.axes.fullgraph)
        for name, run in (("eager", forward), ("compiled", compiled)):
            with probing.part(f"after an empty batch, {name}"):
                layers.zero_grad()
                x = torch.zeros(0, in_features, dtype=ctx.dtype, device=ctx.device, requires_grad=True)
                y = run((ctx.provider.recipe(ctx.axes.recipe),), x)
                torch.autograd.backward(y, torch.ones_like(y))
                probing.fact(f"shape of the output, {name}", (0, in_features), tuple(y.shape))
                for parameter, p in layers.named_parameters():
                    largest = "none" if p.grad is None else p.grad.abs().max().item()
                    probing.fact(f"largest gradient of {parameter}, {name}", 0.0, largest)

    return probes


def _unbounded(ctx: CaseContext, layers: Layers, forward: Callable[..., torch.Tensor]) -> Callable[[Probing], None]:
    """What is not finite stays in its rows, a NaN does not vanish, scales stay usable, compiled does as eager does."""
    rows, in_features, _ = ctx.axes.shape
    variant = ctx.axes.variant

    def probes(probing: Probing) -> None:
        compiled = torch.compile(forward, backend=ctx.axes.backend, fullgraph=ctx.axes.fullgraph)
        outputs: list[torch.Tensor] = []
        for name, run in (("eager", forward), ("compiled", compiled)):
            with probing.part(f"after a batch with {variant}, {name}"), probing.provider.tap() as records:
                generator = torch.Generator().manual_seed(ctx.axes.seed)
                x = UNBOUNDED[variant](draw(ctx.axes.data, (rows, in_features), generator, ctx.dtype, ctx.device))
                y = run((ctx.provider.recipe(ctx.axes.recipe),), x.requires_grad_(True))
                torch.autograd.backward(y, torch.ones_like(y))
                outputs.append(y.detach())
                bad = sorted(set(torch.nonzero(~torch.isfinite(x)).select(1, 0).tolist()))
                spoilt = sorted(set(torch.nonzero(~torch.isfinite(y)).select(1, 0).tolist()))
                probing.fact(f"rows that are not finite beyond {bad}, {name}", [], sorted(set(spoilt) - set(bad)))
                if variant == "nan":
                    count = int(y[bad[0]].isnan().sum())
                    probing.fact(f"elements of row {bad[0]} that are NaN, {name}", in_features, count)
                probing.fact(f"scales of infinity, zero or NaN, {name}", 0, _unusable(records))
        probing.fact("compiled and eager give", "the same bits", _bits(*outputs))

    return probes


def _unusable(records: Sequence[TapRecord]) -> int:
    """Scales that no recipe may come to. E2M1 alone has no NaN of its own: an NVFP4 block says by a NaN scale that it
    holds one, and by a zero scale that it holds zeros."""
    bad = 0
    for operand in (operand for record in records for operand in (record.a, record.b)):
        unusable = torch.isinf(operand.scale)
        if operand.format != "e2m1":
            unusable |= torch.isnan(operand.scale) | (operand.scale == 0)
        bad += int(unusable.sum())
    return bad


def _bits(eager: torch.Tensor, compiled: torch.Tensor) -> str:
    """NaN equals NaN: which of their many bit patterns comes out is nobody's promise."""
    return "the same bits" if torch.equal(eager.nan_to_num(7.0), compiled.nan_to_num(7.0)) else "others"


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears in one region, on the input that ``ctx.axes.variant`` names."""
    variant, recipe = ctx.axes.variant, ctx.axes.recipe
    rows, in_features, _ = ctx.axes.shape
    layers = linears_of(ctx, 2)
    forward = _forward(ctx, layers)
    probes = _unbounded(ctx, layers, forward) if variant in UNBOUNDED else None
    if variant == EMPTY:
        probes = _empty_batch(ctx, layers, forward)

    def make_inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        x = draw(ctx.axes.data, (rows, in_features), generator, ctx.dtype, ctx.device)
        return (EDGES.get(variant, _ordinary)(x).requires_grad_(True),)

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=make_inputs,
        exact_inputs=True,
        probes=probes,
        expects=Expects(fp8_linears=(recipe.label,) * 2, steps=STEPS),
    )


CASE = Case(
    name="amax_edges",
    build=build,
    catches="scales of infinity, zero or NaN, and results that one edge value spoils",
    answers=("pytorch/ao#4713", "pytorch/pytorch#178817", "pytorch/pytorch#192709", "triton-lang/triton#11111"),
)
