"""A weight is quantised at the first micro-batch of a window and kept for the others, while the weights change.

Catches: a kept weight that is never quantised again (NVIDIA/Megatron-LM#5642), or quantised at each call though it was
to be kept (NVIDIA/TransformerEngine#2119); scales that move on without the bytes they belong to
(NVIDIA/TransformerEngine#1047); a cache that a first micro-batch without gradients leaves empty
(NVIDIA/TransformerEngine#539); results that depend on whether weights are kept (NVIDIA/TransformerEngine#2852); a
weight that was kept in one recipe and is used in another; a copy of a layer that writes into what the layer keeps.

Each step is a micro-batch with a forward and backward of its own, three to a window. Weights change after every one of
them: a program that trains changes them between windows alone, but only so can a kept weight be told from a new one.

``flag``: a Python flag says which is the first. ``skip_tensor``: a tensor does, in a region that was opened for graph
capture, so that one graph serves all. ``no_grad_first``: the first runs without gradients. ``accumulated``: a window is
one step, gradients of its micro-batches add up, and weights change between windows. ``other_recipe``: within a window
the recipe becomes one that differs in a single field, so that shapes and dtypes of what is kept would mostly do: its
first call quantises the weight anew, though it isn't the window's first, and the call after it keeps that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cases.kept_copies import copies, refusals
from cases.recipe_fields import others_of, with_other
from cases.toy_linear import flat, linears_of
from harness.data import draw
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects, features_of, lacks
from harness.providers.protocol import ProgramProvider, Provider
from harness.run.host import host_arch
from harness.types import Axes, Spec

WINDOW = 3
LAYERS = 2
# One window and two micro-batches of the next: its first one quantises changed weights, the last judged one keeps them.
STEPS = WINDOW + 2
# For each micro-batch of a window in which the recipe changes, whether it runs in the other one.
IN_OTHER = (False, False, True, True)
FEATURES = ("cached_linear", "prepare_weight_cache", "capturing_autocast", "skip_weight_update")

Forward = Callable[..., torch.Tensor]


def change_weights(model: torch.nn.Module) -> None:
    """As an optimizer would, but so much that no code stays: other sign, other magnitude, no power of two."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("weight"):
                parameter.mul_(-1.25)


def _telling_field(provider: ProgramProvider, recipe: Spec) -> str:
    """A field whose other value gives a weight other bytes; empty where the provider has none. The format has not: a
    weight is E4M3 in every one."""
    return next((field for field, _ in others_of(provider, recipe) if field != "fp8_format"), "")


def asks(provider: Provider, axes: Axes, arch: str) -> Mapping[str, Any]:
    """``field``: in which the other recipe differs."""
    del arch
    return {"field": _telling_field(provider, axes.recipe)} if axes.variant == "other_recipe" else {}


def _is_first(step: Step) -> bool:
    return step.index % WINDOW == 0


def _drive(ctx: CaseContext, layers: torch.nn.ModuleList) -> Callable[[Step], torch.Tensor]:
    skip = features_of(ctx.provider)["skip_weight_update"]

    def flag(step: Step) -> torch.Tensor:
        return step.forward(step.recipes, _is_first(step), *step.inputs)

    def skip_tensor(step: Step) -> torch.Tensor:
        skip(not _is_first(step), layers[0].weight.device)
        try:
            return step.forward(step.recipes, False, *step.inputs)
        finally:
            skip(False, layers[0].weight.device)

    def no_grad_first(step: Step) -> torch.Tensor:
        with torch.set_grad_enabled(not _is_first(step)):
            return flag(step)

    def accumulated(step: Step) -> torch.Tensor:
        return torch.cat([step.forward(step.recipes, i == 0, x) for i, x in enumerate(step.inputs)])

    def other_recipe(step: Step) -> torch.Tensor:
        position = step.index % len(IN_OTHER)
        recipe = step.recipes[IN_OTHER[position]]
        if step.compiled:  # eager calls see for themselves that what is kept is another recipe's
            for layer in layers:
                features_of(ctx.provider)["prepare_weight_cache"](layer, recipe)
        return step.forward((recipe,), position == 0, *step.inputs)

    drives = {
        "flag": flag,
        "skip_tensor": skip_tensor,
        "no_grad_first": no_grad_first,
        "accumulated": accumulated,
        "other_recipe": other_recipe,
    }
    return drives[ctx.axes.variant]


def _expects(ctx: CaseContext) -> Expects:
    products = StepExpects((ctx.axes.recipe.label,) * LAYERS)
    if ctx.axes.variant == "skip_tensor":
        return Expects(schedule=(products,), steps=STEPS)  # which micro-batch it is is data, not a setting
    if ctx.axes.variant == "accumulated":
        window = StepExpects(products.fprop * WINDOW)
        return Expects(schedule=(window,), steps=2, graphs=2, recompiles=1)
    if ctx.axes.variant == "other_recipe":
        other = StepExpects((_other(ctx).label,) * LAYERS)
        schedule = tuple(other if changed else products for changed in IN_OTHER)
        # A graph for the first micro-batch, one for a kept weight in each recipe. One step more than a window: the next
        # one's first micro-batch finds what is kept to be another recipe's.
        return Expects(schedule=schedule, steps=len(IN_OTHER) + 1, graphs=3, recompiles=2)
    without = StepExpects(products.fprop, dgrad=(), wgrad=())
    first = without if ctx.axes.variant == "no_grad_first" else products
    return Expects(
        schedule=(first, products, products),
        steps=STEPS,
        graphs=2,  # one for each value of the flag
        recompiles=1,
        backward_graphs=1 if first is without else 2,
    )


def _other(ctx: CaseContext) -> Spec:
    return with_other(ctx.axes.recipe, ctx.told["field"])


def _parity(ctx: CaseContext, layers: torch.nn.ModuleList, forward: Forward) -> Callable[[Probing], None]:
    """Kept and fresh weights give the same bits, in each micro-batch of a window, output and gradients."""
    autocast = ctx.provider.autocast

    fresh = flat(autocast, layers)

    def probes(probing: Probing) -> None:
        copies(probing, layers[0])
        refusals(probing, layers[0])
        rows, width, _ = ctx.axes.shape
        recipes = (ctx.provider.recipe(ctx.axes.recipe),)
        generator = torch.Generator().manual_seed(ctx.axes.seed)
        compiled: Forward = torch.compile(forward, backend=ctx.axes.backend, fullgraph=ctx.axes.fullgraph)
        for micro in range(WINDOW):
            x = draw(ctx.axes.data, (rows, width), generator, ctx.dtype, ctx.device)
            expected = _tensors(layers, x, functools.partial(fresh, recipes))
            for how, run in (("eager", forward), ("compiled", compiled)):
                if how == "compiled" and ctx.axes.backend == "inductor":
                    continue  # another graph, other roundings
                seen = _tensors(layers, x, functools.partial(run, recipes, micro == 0))
                unequal = [i for i, (a, b) in enumerate(zip(seen, expected, strict=True)) if not torch.equal(a, b)]
                probing.fact(
                    f"{how}, micro-batch {micro}: tensors that differ from those of fresh weights", [], unequal
                )

    return probes


def _tensors(
    layers: torch.nn.ModuleList, x: torch.Tensor, run: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor]:
    """Output, and gradients of the input and the weights."""
    x = x.detach().clone().requires_grad_()
    y = run(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layers.parameters()], torch.ones_like(y))]


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears without bias that keep their weights."""
    layers = linears_of(ctx, LAYERS, bias=False)
    offered = features_of(ctx.provider)
    linear = offered["cached_linear"]
    open_region = offered["capturing_autocast"] if ctx.axes.variant == "skip_tensor" else ctx.provider.autocast
    recipe = ctx.axes.recipe
    specs = (recipe, _other(ctx)) if ctx.axes.variant == "other_recipe" else (recipe,)
    for layer in layers:  # compiled code can't make what outlives its graph
        offered["prepare_weight_cache"](layer, ctx.provider.recipe(recipe))

    def forward(recipes: tuple[object, ...], first: bool, x: torch.Tensor) -> torch.Tensor:
        with open_region(enabled=True, recipe=recipes[0]):
            return linear(layers[1], linear(layers[0], x, first), first)  # type: ignore[no-any-return]

    def make_inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows, width, _ = ctx.axes.shape
        count = WINDOW if ctx.axes.variant == "accumulated" else 1
        drawn = [draw(ctx.axes.data, (rows, width), generator, ctx.dtype, ctx.device) for _ in range(count)]
        return tuple(x.requires_grad_(True) for x in drawn)

    return Program(
        model=layers,
        forward=forward,
        drive=_drive(ctx, layers),
        update=change_weights,
        recipes=lambda: tuple(ctx.provider.recipe(spec) for spec in specs),
        make_inputs=make_inputs,
        expects=_expects(ctx),
        probes=_parity(ctx, layers, forward) if ctx.axes.variant == "flag" else None,
    )


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """A provider must keep weights, and have both ways of saying when."""
    if axes.variant == "skip_tensor" and arch not in (host_arch(), "cpu"):
        return "the skip tensor outlives the cell and is real, so that no graph is traced with it under fake tensors"
    lacking = lacks(provider, *FEATURES)
    if not lacking and axes.variant == "other_recipe" and not _telling_field(provider, axes.recipe):
        return f"{provider.name} has no recipe that differs from {axes.recipe.label} in a field that weights depend on"
    return lacking


CASE = Case(
    name="microbatch",
    build=build,
    catches=(
        "a kept weight that is never quantised again, or at each call, or was empty, or is another recipe's; scales "
        "without their bytes"
    ),
    answers=(
        "NVIDIA/TransformerEngine#1047",
        "NVIDIA/TransformerEngine#539",
        "NVIDIA/TransformerEngine#2852",
        "NVIDIA/TransformerEngine#2119",
        "NVIDIA/Megatron-LM#5642",
    ),
    unavailable=unavailable,
    asks=asks,
)
