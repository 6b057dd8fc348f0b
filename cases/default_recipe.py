"""Regions that name no recipe: ``autocast(enabled=True)``.

Catches: a default that the architecture can't run, or another one than documented; a default that is taken once and
kept for another architecture; a region without a recipe that inherits that of the region around it; a default that
breaks the graph because choosing it asks the device.

The provider says which recipe its default is (feature ``default_recipe(arch)``). The judge holds that word against its
own table (``support.default``), the oracle computes with it, so that the region's numbers must be those of the recipe
that was named, and the probes compare the region's state with that of a region which names it. Where the default is
delayed scaling, which compiles nowhere, its documented error must reach the user, or that of a provider that builds no
default recipe while torch.compile traces (Transformer Engine's assertion; NVIDIA/TransformerEngine#2759).

Variants: ``alone`` (a region without a recipe, then one with the cell's), ``inside`` (the former inside the latter).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from cases.toy_linear import STEPS, Layers, linears_of, rows_of
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, features_of, lacks
from harness.providers.protocol import Autocast, Provider
from harness.types import Axes, Evidence, Raises

REFUSAL = Raises(
    "RuntimeError", "not supported under torch.compile|Recipe objects inside compiled regions is not supported"
)


def _alone(autocast: Autocast, layers: Layers) -> Callable[..., torch.Tensor]:
    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True):
            x = layers[1](layers[0](x))
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[2](x)  # type: ignore[no-any-return]

    return forward


def _inside(autocast: Autocast, layers: Layers) -> Callable[..., torch.Tensor]:
    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with autocast(enabled=True, recipe=None):
                x = layers[1](x)
            return layers[2](x)  # type: ignore[no-any-return]

    return forward


# Per variant: the program, and for each layer whose recipe it has: the default (d) or the cell's (r).
PROGRAMS = {"alone": (_alone, "ddr"), "inside": (_inside, "rdr")}


def asks(provider: Provider, axes: Axes, arch: str) -> Mapping[str, Any]:
    """The recipe that the provider calls its default on ``arch``."""
    del axes
    return {"default_recipe": features_of(provider)["default_recipe"](arch)}


def build(ctx: CaseContext) -> Program:
    """Three ToyLinears, at least one of them under the default recipe."""
    default, named = ctx.told["default_recipe"], ctx.axes.recipe
    assume = features_of(ctx.provider).get("assume_default_recipe")
    if assume is not None:  # the oracle, which knows no library's default
        assume(default)
    make_forward, owners = PROGRAMS[ctx.axes.variant]
    layers = linears_of(ctx, len(owners))
    delayed = "delayed_scaling" in (default.name, named.name)
    labels = {"d": default.label, "r": named.label}
    return Program(
        model=layers,
        forward=make_forward(ctx.provider.autocast, layers),
        recipes=lambda: (ctx.provider.recipe(named),),
        make_inputs=rows_of(ctx),
        probes=lambda probing: same_region(probing, ctx),
        probe_levels=(Evidence.NATIVE, Evidence.EMULATED, Evidence.TRACED, Evidence.NEGATIVE),
        expects=Expects(
            fp8_linears=tuple(labels[owner] for owner in owners),
            steps=STEPS,
            raises=REFUSAL if delayed else None,
        ),
    )


def same_region(probing: Probing, ctx: CaseContext) -> None:
    """A region that names no recipe is in the same state as one that names the default, also inside another."""
    provider, autocast = probing.provider, probing.provider.autocast
    default = ctx.told["default_recipe"]
    believed = provider.supports(default, probing.arch)
    probing.fact("the default recipe can run here", True, believed.level != "unsupported")

    def states(outer: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        with autocast(enabled=outer is not None, recipe=outer):
            with autocast(enabled=True):
                unnamed = provider.snapshot()
            with autocast(enabled=True, recipe=provider.recipe(default)):
                return unnamed, provider.snapshot()

    outers = {"a disabled region": None}
    if probing.evidence is not Evidence.NEGATIVE:
        outers[f"a region of {ctx.axes.recipe.label}"] = provider.recipe(ctx.axes.recipe)
    for where, outer in outers.items():
        with probing.part(f"after default regions inside {where}"):
            unnamed, named = states(outer)
            differing = [f"{key} = {unnamed.get(key)}" for key in named if named[key] != unnamed.get(key)]
            probing.fact(f"state of a region without a recipe inside {where}", [], differing)


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """The provider must be able to say what its default is."""
    del axes, arch
    return lacks(provider, "default_recipe")


CASE = Case(
    name="default_recipe",
    build=build,
    catches="a default recipe that the architecture can't run, is not the documented one, or breaks the graph",
    answers=(
        "NVIDIA/TransformerEngine#2759",
        "NVIDIA/TransformerEngine#2304",
        "NVIDIA/TransformerEngine#1939",
        "pytorch/pytorch#146598",
    ),
    unavailable=unavailable,
    asks=asks,
)
