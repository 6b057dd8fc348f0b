"""Tensors on which an amax or a scale has no ordinary value: zeros, infinities, NaN, the largest and the smallest.

Catches: a scale of infinity, zero or NaN; one zero row or block, of an input, a weight or a gradient, that turns a
whole result into NaN; a huge value that counts as infinite; a NaN of an input, a weight or a gradient that vanishes, an
infinity that spreads; an empty batch that fails.

What is zero in a weight or in a gradient comes about as in training: a layer initialised with zeros, positions masked
out of the loss. One infinity or NaN in a gradient, a NaN in a weight, a gradient of zeros throughout are in the probes
of ``infinite`` and ``nan`` (amax_edges_spread).

``largest_last``: the largest element of input, weights and gradients is their very last, where a reduction that stops
short of it doesn't look; anywhere else most elements could be left out without a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cases.amax_edges_spread import Stack, bad_gradient, bad_lines, beyond, nan_weight, zero_gradient
from cases.toy_linear import Layers, linears_of
from cases.ways import ways
from harness.data import draw
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program
from harness.providers.protocol import Provider, TapRecord
from harness.types import Axes

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
    """One element that leaves no other one a code but zero, where they share a scale; in float16 the largest whose
    gradients stay finite."""
    x[3, 7] = 2.0**100 if x.dtype != torch.float16 else 2.0**10
    return x


def _tiny(x: torch.Tensor) -> torch.Tensor:
    """Small, with encode and decode scales that are still normal float32 numbers; for float16, its subnormals."""
    return x * (2.0**-112 if x.dtype != torch.float16 else 2.0**-20)


def _scale_overflow(x: torch.Tensor) -> torch.Tensor:
    """So small that fp8_max / amax overflows float32 (below 448 / 3.4e38). The largest finite scale stands in, and its
    inverse, the decode scale, is a subnormal number: a kernel that flushes those gives zeros."""
    return x * 2.0**-124


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
    "scale_overflow": _scale_overflow,
}
ZERO_WEIGHT, ZERO_GRADIENT = "zero_weight", "zero_gradient"
LARGEST_LAST = "largest_last"
# More than normal data and weights hold, and a factor that makes nearly every gradient the largest. The last element of
# the result, 8 * 8 * 8 * 64, is still a number of float16.
LARGEST, LARGEST_FACTOR = 8.0, 64.0
# Results that are not finite can't be held to bounds: the program's own batches are ordinary, and probes state what
# must become of these.
UNBOUNDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"infinite": _infinite, "nan": _nan}
EMPTY = "empty"


def _forward(ctx: CaseContext, layers: Layers) -> Callable[..., torch.Tensor]:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            y: torch.Tensor = layers[1](layers[0](x))
        return y if mask is None else y * mask

    return forward


def _mask(like: torch.Tensor) -> torch.Tensor:
    """Ones, but for a block of 128 x 128 and a row: what they mask has a gradient of zero."""
    return _zero_row(_zero_block(torch.ones_like(like)))


def _last(x: torch.Tensor, value: float) -> torch.Tensor:
    x[-1, -1] = value
    return x


def enlarge_last_weights(model: torch.nn.Module) -> None:
    """The last element of each weight becomes its largest."""
    with torch.no_grad():
        for parameter in model.parameters():
            _last(parameter, LARGEST)


def forget_first_weight(model: torch.nn.Module) -> None:
    """The first layer's weight becomes zero, as an adapter's is before its first step."""
    with torch.no_grad():
        next(iter(model.parameters())).zero_()


def _empty_batch(ctx: CaseContext, layers: Layers, forward: Callable[..., torch.Tensor]) -> Callable[[Probing], None]:
    """An empty batch gives an empty result and gradients of zero, compiled as in eager."""
    _, in_features, _ = ctx.axes.shape

    def probes(probing: Probing) -> None:
        for name, run in ways(ctx, forward):
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
    """What is not finite stays in its rows, a NaN does not vanish, scales stay usable, compiled does as eager does.

    Backward too: the input's gradient never meets the input, and the first weight's meets it in one column. Then, on
    ordinary batches: a gradient with one such element, a weight with a NaN, a gradient of zeros.
    """
    rows, in_features, _ = ctx.axes.shape
    variant = ctx.axes.variant

    def probes(probing: Probing) -> None:
        results: list[list[torch.Tensor]] = []
        for name, run in ways(ctx, forward):
            with probing.part(f"after a batch with {variant}, {name}"), probing.provider.tap() as records:
                generator = torch.Generator().manual_seed(ctx.axes.seed)
                x = UNBOUNDED[variant](draw(ctx.axes.data, (rows, in_features), generator, ctx.dtype, ctx.device))
                y = run((ctx.provider.recipe(ctx.axes.recipe),), x.requires_grad_(True))
                grads = torch.autograd.grad(y, [x, *layers.parameters()], torch.ones_like(y))
                results.append([y.detach(), *grads])
                _state_spread(probing, variant, name, x, y, grads)
                stack = _stack(ctx, layers, name, run)
                results[-1] += bad_gradient(probing, variant, stack)
                # Either is for every recipe; each in one of the two, to keep them short.
                results[-1] += {"nan": nan_weight, "infinite": zero_gradient}[variant](probing, stack)
                probing.fact(f"scales of infinity, zero or NaN, {name}", 0, _unusable(records))
        # Under inductor the sums between the products may round elsewhere, and quantisation magnifies that.
        if len(results) == 2 and ctx.axes.backend != "inductor":
            probing.fact("compiled and eager give", "the same bits", _bits(*results))

    return probes


def _stack(ctx: CaseContext, layers: Layers, name: str, run: Callable[..., torch.Tensor]) -> Stack:
    rows, in_features, _ = ctx.axes.shape
    generator = torch.Generator().manual_seed(ctx.axes.seed)
    x = draw(ctx.axes.data, (rows, in_features), generator, ctx.dtype, ctx.device).requires_grad_(True)
    recipes = (ctx.provider.recipe(ctx.axes.recipe),)
    return Stack(name, lambda batch: run(recipes, batch), x, list(layers.parameters()))


def _state_spread(
    probing: Probing, variant: str, name: str, x: torch.Tensor, y: torch.Tensor, grads: Sequence[torch.Tensor]
) -> None:
    """How far what is not finite in ``x`` got: ``y``, and the gradients of input, first and second weight."""
    rows, columns = bad_lines(x, 0), bad_lines(x, 1)
    probing.fact(f"rows that are not finite beyond {rows}, {name}", [], beyond(bad_lines(y, 0), rows))
    probing.fact(f"rows of the input's gradient that are not finite, {name}", [], bad_lines(grads[0], 0))
    spoilt = beyond(bad_lines(grads[1], 1), columns)
    probing.fact(f"columns of the first weight's gradient that are not finite beyond {columns}, {name}", [], spoilt)
    if variant == "nan":
        probing.fact(f"elements of row {rows[0]} that are NaN, {name}", y.shape[1], int(y[rows[0]].isnan().sum()))
        column = grads[1][:, columns[0]]
        probing.fact(f"elements of column {columns[0]} that are NaN, {name}", len(column), int(column.isnan().sum()))


def _unusable(records: Sequence[TapRecord]) -> int:
    """How many scales are none that a recipe may come to; 1 without a record, since a tap that shows nothing proves
    nothing. E2M1 alone has no NaN and no infinity of its own: an NVFP4 block says by a NaN scale that it holds one, and
    by a zero scale that it holds zeros."""
    bad = 0 if records else 1
    for operand in (operand for record in records for operand in (record.a, record.b)):
        unusable = torch.isinf(operand.scale)
        if operand.format != "e2m1":
            unusable |= torch.isnan(operand.scale) | (operand.scale == 0)
        bad += int(unusable.sum())
        if operand.global_scale is not None:
            bad += int((~torch.isfinite(operand.global_scale) | (operand.global_scale == 0)).sum())
    return bad


def _bits(eager: Sequence[torch.Tensor], compiled: Sequence[torch.Tensor]) -> str:
    """NaN equals NaN: which of their many bit patterns comes out is nobody's promise."""
    return "the same bits" if all(map(same_but_for_nan, eager, compiled)) else "others"


def same_but_for_nan(one: torch.Tensor, other: torch.Tensor) -> bool:
    """NaN at the same places, and equal everywhere else."""
    holes = one.isnan()
    return torch.equal(holes, other.isnan()) and torch.equal(one.masked_fill(holes, 0), other.masked_fill(holes, 0))


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears in one region, on the input that ``ctx.axes.variant`` names."""
    variant, recipe = ctx.axes.variant, ctx.axes.recipe
    rows, in_features, _ = ctx.axes.shape
    # A bias would fill what is zero with rows that are all alike, whose gradients cancel.
    layers = linears_of(ctx, 2, bias=False)
    forward = _forward(ctx, layers)
    probes = _unbounded(ctx, layers, forward) if variant in UNBOUNDED else None
    if variant == EMPTY:
        probes = _empty_batch(ctx, layers, forward)

    def make_inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        x = draw(ctx.axes.data, (rows, in_features), generator, ctx.dtype, ctx.device)
        if variant == LARGEST_LAST:
            return _last(x, LARGEST).requires_grad_(True), _last(torch.ones_like(x), LARGEST_FACTOR)
        x = EDGES.get(variant, _ordinary)(x).requires_grad_(True)
        return (x, _mask(x.detach())) if variant == ZERO_GRADIENT else (x,)

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=make_inputs,
        exact_inputs=True,
        update={ZERO_WEIGHT: forget_first_weight, LARGEST_LAST: enlarge_last_weights}.get(variant),
        probes=probes,
        expects=Expects(fp8_linears=(recipe.label,) * 2, steps=STEPS),
    )


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """Where a scale can't come near float32's limits: float16 ends at 65504 and 2^-24. Off Blackwell Triton's scaled
    dot multiplies bfloat16 operands, and flushes those that an E8M0 scale of 2^-127 leaves subnormal (on an H200)."""
    if axes.variant != "scale_overflow":
        return ""
    if axes.dtype == "float16":
        return "no amax of float16 is small enough for a scale beyond float32"
    if arch != "cpu" and provider.supports(axes.recipe, arch).level == "emulated":
        return "the emulation on a GPU flushes subnormal operands"
    return ""


CASE = Case(
    name="amax_edges",
    build=build,
    catches="scales of infinity, zero or NaN, and results that one edge value spoils",
    answers=("pytorch/ao#4713", "pytorch/pytorch#178817", "pytorch/pytorch#192709", "triton-lang/triton#11111"),
    unavailable=unavailable,
)
