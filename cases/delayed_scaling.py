"""Delayed scaling, whose scales come from the amaxes of earlier steps: what it computes in eager mode over several
steps, and its refusal under torch.compile, from wherever it is met and on each call.

Catches, compiled: a refusal that fullgraph=False, a ``try`` in the user's code, a checkpoint or a region outside the
compiled module turns into a silent eager run. Eager: scales that stand still or are a step off, a history that never
forgets, forward and backward buffers mixed up when the history's length changes, a recompute that counts twice, a
second use of a layer whose amax takes the place of a larger one, a calibration that records nothing, scales that a copy
shares with its layer or that a group's processes don't share, that inference moves, or that a step of zeros or NaN
resets or poisons (``delayed_state``).

Variants: ``inside`` (the region in compiled code), ``around`` (around the compiled module), ``nested`` (inside a
region of a recipe that compiles, and around one), ``checkpoint`` (the provider's own, around the layers),
``try_except`` (the compiled function itself catches RuntimeError and goes on in high precision), ``resized``
(``amax_history_len`` changes between steps), ``shared`` (a layer runs twice in the region, on the larger values first,
forward and backward), ``calibrated`` (each fifth step runs in high precision and calibrates: the scales of the next one
are from its amaxes). A history of two steps unless the matrix says otherwise: long enough to
hold one step beyond the last, short enough to forget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from cases.delayed_state import copied_scales, group_scales, kept_scales
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


def _shared(ctx: CaseContext, layers: Layers) -> Forward:
    """A layer's second use has a quarter of the first one's input and four times its gradient, which comes first."""
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[1](layers[0](x) + layers[0](x / 4) * 4)  # type: ignore[no-any-return]

    return forward


def _calibrated(ctx: CaseContext, layers: Layers) -> Forward:
    """Both layers on the batch itself: what a calibration records is then known bit for bit, without any product."""
    del ctx

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        del recipes
        return layers[0](x) + layers[1](x)  # type: ignore[no-any-return]

    return forward


# Per variant: the program, and for each call of a layer whose recipe it has: the delayed one (d) or its partner (p).
PROGRAMS: Mapping[str, tuple[Callable[[CaseContext, Layers], Forward], str]] = {
    "inside": (_inside, "dd"),
    "around": (_around, "dd"),
    "nested": (_nested, "pdp"),
    "checkpoint": (_checkpoint, "dd"),
    "try_except": (_try_except, "dd"),
    "resized": (_inside, "dd"),
    "shared": (_shared, "ddd"),
    "calibrated": (_calibrated, "dd"),
}


def specs_of(axes: Axes) -> Sequence[Spec]:
    """The recipe of each step in turn: what the matrix wrote, over the variant's own fields."""
    own = with_fields(axes.recipe, {**FIELDS.get(axes.variant, USUAL), **axes.recipe.as_dict()})
    if axes.variant != "resized":
        return (own,)
    return tuple(with_fields(own, {"amax_history_len": length}) for length in LENGTHS)


def _layers(ctx: CaseContext, owners: str) -> Layers:
    if ctx.axes.variant == "calibrated":  # side by side, not one behind the other
        return Layers([*linears_of(ctx, 1), *linears_of(ctx, 1)])
    return linears_of(ctx, 2 if ctx.axes.variant == "shared" else len(owners))


def _drive(ctx: CaseContext, delayed_recipes: int) -> Callable[[Step], torch.Tensor]:
    variant = ctx.axes.variant

    def region(step: Step, recipe: Any) -> AbstractContextManager[Any]:
        if variant == "calibrated" and step.index % STEPS == 0:
            return features_of(ctx.provider)["calibrating_autocast"](recipe=recipe)  # type: ignore[no-any-return]
        return ctx.provider.autocast(enabled=True, recipe=recipe)

    def drive(step: Step) -> torch.Tensor:
        recipe = step.recipes[step.index % delayed_recipes]
        given = (recipe, *step.recipes[delayed_recipes:])
        if variant not in ("around", "calibrated"):
            return step.forward(given, *step.inputs)
        with region(step, recipe):
            return step.forward(given, *step.inputs)

    return drive


def _schedule(ctx: CaseContext, specs: Sequence[Spec], owners: str) -> tuple[StepExpects, ...]:
    def expects(spec: Spec) -> StepExpects:
        ran = tuple(spec.label if owner == "d" or ctx.inner is None else ctx.inner.label for owner in owners)
        # Each checkpointed layer runs again before the backward of the last one.
        return StepExpects(ran, recompute=ran if ctx.axes.variant == "checkpoint" else ())

    if ctx.axes.variant == "calibrated":
        return (StepExpects(()), *(expects(specs[0]) for _ in range(1, STEPS)))
    return tuple(map(expects, specs))


def build(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.variant``."""
    variant, specs = ctx.axes.variant, specs_of(ctx.axes)
    make_forward, owners = PROGRAMS[variant]
    layers = _layers(ctx, owners)
    partner = [] if ctx.inner is None else [ctx.inner]
    return Program(
        model=layers,
        forward=make_forward(ctx, layers),
        recipes=lambda: tuple(ctx.provider.recipe(spec) for spec in (*specs, *partner)),
        make_inputs=rows_of(ctx),
        drive=_drive(ctx, len(specs)),
        expects=Expects(schedule=_schedule(ctx, specs, owners), steps=STEPS, raises=REFUSAL),
        probes=_by_hand if variant == "resized" else None,
    )


def _by_hand(probing: Probing) -> None:
    """What a provider shows of its scales (feature ``delayed_scales``), beside what they must be."""
    histories(probing)
    kept_scales(probing)
    copied_scales(probing)
    group_scales(probing)


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
    """A checkpoint that recomputes in its region, layers that keep their history when its length changes, a region that
    calibrates."""
    del arch
    needed = {
        "checkpoint": ("checkpoint",),
        "resized": ("delayed_scales",),
        "calibrated": ("calibrating_autocast",),
    }.get(axes.variant, ())
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
