"""Activation checkpointing: the body of a checkpoint runs a second time, during backward.

Catches: a recompute in high precision, or in another region's recipe, because the region was left before backward began
(NVIDIA/Megatron-LM#7538); scales that move twice in a step, or not at all, because the body ran twice
(NVIDIA/TransformerEngine#1190, #3284); state that a recompute leaves behind (NVIDIA/TransformerEngine#3213); a compiled
region inside a checkpointed body that is refused, or silently runs in Python; a body whose keyword arguments are lost,
or whose recompute draws other random numbers (``checkpoint_body``).

Who checkpoints: ``own`` is the provider's function, ``torch`` and ``reentrant`` are torch's. Where the regions are:
``inside`` the checkpointed body (the whole program is one body), ``around`` it (each stretch between two regions' edges
is a body of two linears, so that a wrong recompute reaches the second one's weight gradient), or both. Backward runs
outside of all regions, but for ``torch_backward_inside``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint

from cases.checkpoint_body import body_of_a_checkpoint
from cases.refusals import delayed_refusal
from cases.toy_linear import HISTORY_STEPS, NESTED_PROGRAMS, STEPS, linears_of, rows_of
from harness import torch_compat
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects, features_of, lacks
from harness.providers.protocol import ProgramProvider, Provider
from harness.types import Axes, Raises

Forward = Callable[..., torch.Tensor]
Checkpoint = Callable[..., torch.Tensor]

# Dynamo refuses a body with side effects (the region's writes) unless it may leave them out of the recompute.
SKIP_SIDE_EFFECTS = "dynamo.skip_fwd_side_effects_in_bwd_under_checkpoint"
UNSAFE = Raises("Unsupported", "HOP: Unsafe side effect")


@dataclass(frozen=True)
class Variant:
    """Who checkpoints ("own", "torch", "reentrant"), and where the regions are ("inside", "around", "both").

    ``skip``: SKIP_SIDE_EFFECTS is on. ``backward_inside``: backward runs in a region of the outer recipe.
    """

    by: str
    regions: str
    skip: bool = False
    backward_inside: bool = False


VARIANTS = {
    "own_around": Variant("own", "around"),
    "own_inside": Variant("own", "inside", skip=True),
    "own_both": Variant("own", "both", skip=True),
    "torch_inside": Variant("torch", "inside"),
    "torch_inside_skip": Variant("torch", "inside", skip=True),
    "torch_around": Variant("torch", "around"),
    "torch_backward_inside": Variant("torch", "around", backward_inside=True),
    "reentrant_inside": Variant("reentrant", "inside"),
    "reentrant_inside_skip": Variant("reentrant", "inside", skip=True),
    "reentrant_around": Variant("reentrant", "around"),
}


def recomputed(backend: str, bodies: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Labels of what is recomputed, ``bodies`` being the FP8 linears of each checkpoint in forward order. Autograd's
    engine takes the last body first.

    AOT drops what backward doesn't need: a body's last product is read by what comes after the body alone, which kept
    it. Eager code, and the eager backend with it, runs torch's own checkpoint, which stops once everything is there
    that backward saved: a linear saves its operands *after* its product.
    """
    needed = slice(None) if backend == "eager" else slice(-1)
    return tuple(label for body in reversed(bodies) for label in body[needed])


def _recomputed_compiled(backend: str, bodies: Sequence[Sequence[str]], *, captured: bool) -> tuple[str, ...]:
    """:func:`recomputed` in compiled code: as in eager code where the checkpoint is not captured, and not at all where
    the eager backend runs a captured one as if nothing were checkpointed (torch 2.11)."""
    if not captured:
        return recomputed("eager", bodies)
    if backend == "eager" and not torch_compat.eager_backend_recomputes():
        return ()
    return recomputed(backend, bodies)


def _plain(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> torch.Tensor:
    """What a checkpoint computes."""
    return function(*args)


def _checkpoint_of(provider: ProgramProvider, by: str) -> Checkpoint:
    offered = features_of(provider)
    if by == "own":
        return offered["checkpoint"]
    # The oracle leaves torch's out too: a reentrant one can't be asked for single gradients.
    torchs = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=by == "reentrant")
    return offered.get("torch_checkpoint", torchs)


def _forward(ctx: CaseContext, variant: Variant, layers: torch.nn.ModuleList, checkpoint: Checkpoint) -> Forward:
    """The program of the cell's nesting with ``checkpoint`` where the variant has it."""
    make, owners = NESTED_PROGRAMS[ctx.axes.nesting]
    autocast = ctx.provider.autocast
    if variant.regions == "around":
        bodies: Any = [_body_of(layers, 2 * i, checkpoint) for i in range(len(owners))]  # called as layers are
        return make(autocast, bodies)
    program = make(autocast, layers)

    def inside(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: program(recipes, x), x)

    def both(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[1]):
            return inside(recipes, x)

    return inside if variant.regions == "inside" else both


def _body_of(layers: torch.nn.ModuleList, first: int, checkpoint: Checkpoint) -> Callable[[torch.Tensor], torch.Tensor]:
    """Two linears as one checkpointed body."""

    def body(x: torch.Tensor) -> torch.Tensor:
        return layers[first + 1](layers[first](x))  # type: ignore[no-any-return]

    return lambda x: checkpoint(body, x)


def _expects(ctx: CaseContext, variant: Variant) -> Expects:
    """What runs where: in eager code as it is, in compiled code as it should be."""
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    # Between two regions FP8 is off, unless there is one around them both.
    between = (inner.label,) if variant.regions == "both" and ctx.axes.nesting == "sequential" else ()
    labels: dict[str, tuple[str, ...]] = {"o": (outer.label,), "i": (inner.label,), "-": between}
    owners = NESTED_PROGRAMS[ctx.axes.nesting][1]
    around = variant.regions == "around"
    bodies: list[tuple[str, ...]] = [labels[owner] * (2 if around else 1) for owner in owners]
    if not around:
        bodies = [tuple(label for body in bodies for label in body)]
    fprop = tuple(label for body in bodies for label in body)
    wrong = eager_fault(ctx, variant)
    seen = bodies
    if variant.backward_inside:
        seen = [2 * (outer.label,) for _ in owners]
    elif wrong and around:
        seen = []
    eager = StepExpects(fprop, recomputed("eager", seen))
    if wrong and variant.by == "reentrant":
        eager = StepExpects(fprop, dgrad=(), wgrad=())  # the only graph is that of the recompute, in high precision
    opens = variant.regions != "around" and not variant.skip
    raises = delayed_refusal(ctx) or (UNSAFE if opens and ctx.axes.fullgraph else None)
    return Expects(
        schedule=(eager,),
        compiled_schedule=(StepExpects(fprop, _recomputed_compiled(ctx.axes.backend, bodies, captured=not opens)),),
        steps=HISTORY_STEPS if outer.name == "delayed_scaling" else STEPS,
        raises=raises,
        # Without fullgraph torch breaks at the call, and its own checkpoint, which Dynamo keeps out of, runs the body.
        graphs=0 if opens else 1,
        captured=not opens,
        graph_breaks=2 if opens else 0,
        eager_is_wrong=wrong,
        eager_error="CheckpointError" if wrong else "",
    )


def eager_fault(ctx: CaseContext, variant: Variant) -> str:
    """Why eager code is on the wrong side with torch's own checkpoint; empty where it isn't."""
    if variant.by == "own":
        return ""
    delayed, reentrant = ctx.axes.recipe.name == "delayed_scaling", variant.by == "reentrant"
    if variant.regions == "around":
        if not variant.backward_inside:
            return "torch's checkpoint recomputes in high precision, since the region was left before backward"
        if ctx.axes.nesting != "flat":
            return "torch's checkpoint recomputes everything in the region that is open during backward"
    if delayed and not reentrant:  # a reentrant forward has no gradients, so nothing is recorded before the recompute
        return "torch's checkpoint records amaxes twice, and recomputes with the scales of the next step"
    return ""


def build(ctx: CaseContext) -> Program:
    """The nested programs of toy_linear with checkpoints in them."""
    variant = VARIANTS[ctx.axes.variant]
    owners = NESTED_PROGRAMS[ctx.axes.nesting][1]
    layers = linears_of(ctx, len(owners) * (2 if variant.regions == "around" else 1))
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    autocast = ctx.provider.autocast

    def around_backward(step: Step, backward: Callable[[], None]) -> None:
        with autocast(enabled=True, recipe=step.recipes[0]):
            backward()

    return Program(
        model=layers,
        forward=_forward(ctx, variant, layers, _checkpoint_of(ctx.provider, variant.by)),
        sound=_forward(ctx, variant, layers, _plain),
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        around_backward=around_backward if variant.backward_inside else None,
        settings={SKIP_SIDE_EFFECTS: True} if variant.skip else {},
        expects=_expects(ctx, variant),
        # What compiled code needs to have a region in the body (skip) is no matter of what the body is given.
        probes=body_of_a_checkpoint(ctx, layers[0]) if ctx.axes.variant == "own_around" else None,
    )


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """A provider without a checkpoint of its own can run torch's all the same."""
    del arch
    return lacks(provider, "checkpoint") if VARIANTS[axes.variant].by == "own" else ""


CASE = Case(
    name="checkpoint",
    build=build,
    catches="a recompute in another recipe than its forward, scales that move twice, a body that is not compiled",
    answers=(
        "NVIDIA/Megatron-LM#7538",
        "NVIDIA/TransformerEngine#3213",
        "NVIDIA/TransformerEngine#3284",
        "NVIDIA/TransformerEngine#1190",
    ),
    unavailable=unavailable,
)
