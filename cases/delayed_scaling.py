"""Delayed scaling, whose scales come from the amaxes of earlier steps: what it computes in eager mode over several
steps, and its refusal under torch.compile, from wherever it is met and on each call.

Catches, compiled: a refusal that fullgraph=False, a ``try`` in the user's code, a checkpoint or a region outside the
compiled module turns into a silent eager run. Eager: scales that stand still or are a step off, a history that never
forgets, forward and backward buffers mixed up when the history's length changes, a recompute that counts twice.

Variants: ``inside`` (the region in compiled code), ``around`` (around the compiled module), ``nested`` (inside a
region of a recipe that compiles, and around one), ``checkpoint`` (the provider's own, around the layers),
``try_except`` (the compiled function itself catches RuntimeError and goes on in high precision), ``resized``
(``amax_history_len`` changes between steps). A history of two steps unless the matrix says otherwise: long enough to
hold one step beyond the last, short enough to forget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from cases.recipe_fields import with_fields
from cases.toy_linear import Layers, bare, flat, linears_of, rows_of
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects, features_of, lacks
from harness.providers.protocol import Provider
from harness.types import Axes, Raises, Scalar, Spec

Forward = Callable[..., torch.Tensor]

REFUSAL = Raises("RuntimeError", "not supported under torch.compile")

# Batches have magnitudes 1, 8, 1/8, 1: the fourth step's scales still know the 8 (if the largest counts), the fifth's
# don't.
STEPS = 5
FIELDS: Mapping[str, Mapping[str, Scalar]] = {
    "around": {"amax_history_len": 2, "amax_compute_algo": "most_recent", "margin": 1},
    "nested": {"amax_history_len": 2, "fp8_format": "E4M3"},
}
USUAL: Mapping[str, Scalar] = {"amax_history_len": 2}
# Shrinking, growing, and back: each length is met by a history that was recorded under another one.
LENGTHS = (3, 2, 4, 4, 3)


def _inside(ctx: CaseContext, layers: Layers) -> Forward:
    autocast = ctx.provider.autocast

    return flat(autocast, layers)


def _around(ctx: CaseContext, layers: Layers) -> Forward:
    del ctx

    return bare(layers)


def _nested(ctx: CaseContext, layers: Layers) -> Forward:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[1]):
            x = layers[0](x)
            with autocast(enabled=True, recipe=recipes[0]):
                x = layers[1](x)
                with autocast(enabled=True, recipe=recipes[1]):
                    return layers[2](x)  # type: ignore[no-any-return]

    return forward


def _checkpoint(ctx: CaseContext, layers: Layers) -> Forward:
    autocast, checkpoint = ctx.provider.autocast, features_of(ctx.provider)["checkpoint"]

    def body(x: torch.Tensor) -> torch.Tensor:
        return layers[1](layers[0](x))  # type: ignore[no-any-return]

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return checkpoint(body, x)  # type: ignore[no-any-return]

    return forward


def _try_except(ctx: CaseContext, layers: Layers) -> Forward:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        try:
            with autocast(enabled=True, recipe=recipes[0]):
                return layers[1](layers[0](x))  # type: ignore[no-any-return]
        except RuntimeError:
            return layers[1](layers[0](x))  # type: ignore[no-any-return]

    return forward


# Per variant: the program, and for each layer whose recipe it has: the delayed one (d) or its partner (p).
PROGRAMS: Mapping[str, tuple[Callable[[CaseContext, Layers], Forward], str]] = {
    "inside": (_inside, "dd"),
    "around": (_around, "dd"),
    "nested": (_nested, "pdp"),
    "checkpoint": (_checkpoint, "dd"),
    "try_except": (_try_except, "dd"),
    "resized": (_inside, "dd"),
}


def specs_of(axes: Axes) -> Sequence[Spec]:
    """The recipe of each step in turn: what the matrix wrote, over the variant's own fields."""
    own = with_fields(axes.recipe, {**FIELDS.get(axes.variant, USUAL), **axes.recipe.as_dict()})
    if axes.variant != "resized":
        return (own,)
    return tuple(with_fields(own, {"amax_history_len": length}) for length in LENGTHS)


def build(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.variant``."""
    variant, specs, inner = ctx.axes.variant, specs_of(ctx.axes), ctx.inner
    make_forward, owners = PROGRAMS[variant]
    layers = linears_of(ctx, len(owners))
    partner = [] if inner is None else [inner]

    def drive(step: Step) -> torch.Tensor:
        delayed = step.recipes[step.index % len(specs)]
        given = (delayed, *step.recipes[len(specs) :])
        if variant != "around":
            return step.forward(given, *step.inputs)
        with ctx.provider.autocast(enabled=True, recipe=delayed):
            return step.forward(given, *step.inputs)

    def expects(spec: Spec) -> StepExpects:
        ran = tuple(spec.label if owner == "d" else partner[0].label for owner in owners)
        # Each checkpointed layer runs again before the backward of the last one.
        return StepExpects(ran, recompute=ran if variant == "checkpoint" else ())

    return Program(
        model=layers,
        forward=make_forward(ctx, layers),
        recipes=lambda: tuple(ctx.provider.recipe(spec) for spec in (*specs, *partner)),
        make_inputs=rows_of(ctx),
        drive=drive,
        expects=Expects(schedule=tuple(map(expects, specs)), steps=STEPS, raises=REFUSAL),
        probes=histories if variant == "resized" else None,
    )


SIZE = 128
# Per step of the probe: the history's length, the input's value and the output gradient's, both constant tensors.
CONSTANTS = ((3, 7.0, 2.0), (3, 14.0, 1.0), (3, 3.5, 4.0), (5, 7.0, 0.5), (2, 1.75, 1.0), (2, 1.75, 1.0))


def histories(probing: Probing) -> None:
    """Scales and histories themselves, after each step, beside those worked out by hand for constant tensors."""
    provider = probing.provider
    with torch.random.fork_rng(devices=[probing.device] if probing.device.type == "cuda" else []):
        layer = provider.linear(SIZE, SIZE, bias=False, dtype=probing.dtype, device=probing.device)
    with torch.no_grad():
        layer.weight.fill_(0.5)  # type: ignore[operator]
    kept = {role: Expected() for role in ("input", "weight", "grad_output")}
    tops = {"input": 448.0, "weight": 448.0, "grad_output": 57344.0}
    for number, (length, value, grad) in enumerate(CONSTANTS, 1):
        recipe = provider.recipe(Spec("delayed_scaling", (("amax_history_len", length),)))
        x = torch.full((SIZE, SIZE), value, dtype=probing.dtype, device=probing.device, requires_grad=True)
        with probing.part(f"after step {number} of the probe"):
            with provider.autocast(enabled=True, recipe=recipe):
                y = layer(x)
            y.backward(torch.full_like(y, grad))
        seen = features_of(provider)["delayed_scales"](layer)
        for role, amax in (("input", value), ("weight", 0.5), ("grad_output", grad)):
            kept[role] = kept[role].after(amax, length, tops[role])
            name = f"scale and history of {role} after step {number}, {length} rows"
            probing.fact(name, (kept[role].scale, list(kept[role].history)), seen.get(role))


class Expected:
    """A scale and its history by the definition (arXiv:2209.05433; rows as Transformer Engine keeps them).

    Row 0 is the running step's, the others hold the steps before it, oldest first; another length cuts rows off or
    adds zeros at the end.
    """

    def __init__(self, scale: float = 1.0, history: tuple[float, ...] = ()) -> None:
        self.scale, self.history = scale, history

    def after(self, amax: float, length: int, top: float) -> Expected:
        """One step on: ``amax`` takes row 0, the largest row gives the scale, then the rows move up by one."""
        rows = (self.history + (0.0,) * length)[:length]
        rows = (amax, *rows[1:])
        return Expected(top / max(rows), (0.0, *rows[2:], rows[0]) if length > 1 else (0.0,))


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """A checkpoint that recomputes in its region, or layers that keep their history when its length changes."""
    del arch
    needed = {"checkpoint": ("checkpoint",), "resized": ("delayed_scales",)}.get(axes.variant, ())
    return lacks(provider, *needed)


CASE = Case(
    name="delayed_scaling",
    build=build,
    catches="a refusal that is swallowed; scales and histories that stand still, never forget or get mixed up",
    answers=(
        "NVIDIA/TransformerEngine#2759",
        "NVIDIA/TransformerEngine#1190",
        "NVIDIA/TransformerEngine#2620",
        "NVIDIA/TransformerEngine#308",
        "pytorch/pytorch#138215",
    ),
    unavailable=unavailable,
)
