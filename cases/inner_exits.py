"""A probe: what an inner region leaves behind inside the outer ones, in state that no layer shows.

Layers read whether FP8 is on, and the recipe. What else a region sets (calibration, the group over which amaxes are
reduced, graph capture, how deep it is) comes to light much later, or on many GPUs alone, if an inner region's exit
forgets it; and once the outermost region has been left, everything is as it was. So the state is compared while the
outer regions are open.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from harness.observe.census import reset_compiler
from harness.probing import Probing
from harness.program import CaseContext

# What Transformer Engine's autocast takes beside ``enabled`` and ``recipe``, with two values of each. Any object stands
# for a group: no layer runs, so none is asked for its ranks.
KEYWORDS: Mapping[str, tuple[Any, Any]] = {
    "calibrating": (True, False),
    "amax_reduction_group": ("one group", "another group"),
    "_graph": (True, False),
}


class _Raised(Exception):
    """What ends a region."""


def keywords_of(autocast: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Those of ``KEYWORDS`` that this provider's region takes."""
    taken = inspect.signature(autocast).parameters
    return {name: values for name, values in KEYWORDS.items() if name in taken}


def inner_exits(ctx: CaseContext) -> Callable[[Probing], None]:
    """Three regions inside each other, each unlike the one around it in every keyword. The innermost is entered
    eagerly, in compiled code, and left by an exception."""

    def probes(probing: Probing) -> None:
        autocast = probing.provider.autocast
        keywords = keywords_of(autocast)

        def region(recipe: Any, position: int) -> Any:
            return autocast(
                enabled=position == 0, recipe=recipe, **{name: values[position] for name, values in keywords.items()}
            )

        def plain(recipe: Any, x: torch.Tensor) -> torch.Tensor:
            with region(recipe, 0):
                return x + 1

        def raising(recipe: Any, x: torch.Tensor) -> torch.Tensor:
            try:
                with region(recipe, 0):
                    raise _Raised
            except _Raised:
                return x

        outer, inner = ctx.provider.recipe(ctx.axes.recipe), ctx.provider.recipe(ctx.inner or ctx.axes.recipe)
        reset_compiler()
        ways = {"eager": plain, "ended by an exception": raising}
        if ctx.axes.recipe.name != "delayed_scaling":  # compiles nowhere
            ways["compiled"] = torch.compile(plain, backend="eager", fullgraph=ctx.axes.fullgraph)
        for how, enter in ways.items():
            with region(outer, 0), probing.part(f"in the outermost of three regions, {how}"):
                at_first = dict(probing.provider.snapshot())
                with region(inner, 1), probing.part(f"in the middle one of three regions, {how}"):
                    _regions_differ(probing, at_first, len(keywords) + 2)
                    enter(ctx.provider.recipe(ctx.axes.recipe), torch.ones(2))

    return probes


def _regions_differ(probing: Probing, outer: Mapping[str, Any], keywords: int) -> None:
    """Equal regions would prove nothing: each keyword must show in the state, and so must how deep it is."""
    seen = probing.provider.snapshot()
    differ = sorted(key for key in {*outer, *seen} if outer.get(key) != seen.get(key))
    wanted = f"more than {keywords} keys"
    probing.fact("state that two nested regions differ in", wanted, wanted if len(differ) > keywords else differ)
