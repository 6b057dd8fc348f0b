"""A probe: what a library refuses as a recipe. Values out of range are refused where the recipe is made, objects that
are no recipe where a region is entered, before anything is written, eagerly and in compiled code.

What a provider says that it refuses must be refused: Transformer Engine says nothing of the kind (2.20 takes any object
that answers as a recipe does, and any margin).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from cases.recipe_fields import VALUES, with_fields
from harness.observe.census import reset_compiler
from harness.observe.errors import describe_error, is_documented
from harness.probing import Probing
from harness.program import CaseContext, features_of
from harness.types import Spec

CALLS = 2  # the second meets whatever the first one cached


class Lookalike:
    """What another library's recipe may look like: the same questions, the same answers."""

    name, key, multiple, amax_epsilon = "float8_current_scaling", "float8_current_scaling()", 16, 0.0

    def delayed(self) -> bool:
        """No scales of earlier steps."""
        return False


# By what stands in the place of a recipe.
FOREIGN: Mapping[str, Callable[[Any], Any]] = {
    "a lookalike": lambda recipe: Lookalike(),
    "a name": lambda recipe: "float8_current_scaling",
    "a recipe's class": type,
}


def recipe_refusals(probing: Probing, ctx: CaseContext) -> None:
    """Features ``refused_values`` (recipe name -> values by field) and ``refuses_foreign_recipe`` (error, text)."""
    offered = features_of(probing.provider)
    if "refused_values" in offered:
        _values(probing, offered["refused_values"])
    if "refuses_foreign_recipe" in offered:
        _foreign(probing, ctx, *offered["refuses_foreign_recipe"]())


def _values(probing: Probing, refused: Callable[[str], Mapping[str, tuple[Any, ...]]]) -> None:
    for name in VALUES:
        taken = []
        for field, values in refused(name).items():
            for value in values:
                try:
                    probing.provider.recipe(with_fields(Spec(name), {field: value}))
                except Exception as raised:  # whatever it is, it is the fact
                    if isinstance(raised, ValueError) and field in str(raised):
                        continue
                    taken.append(f"{field}={value!r}: {type(raised).__name__}: {raised}")
                else:
                    taken.append(f"{field}={value!r}")
        probing.fact(f"{name}: values out of range that are not refused by their field's name", [], taken)


def _foreign(probing: Probing, ctx: CaseContext, error: str, text: str) -> None:
    autocast = probing.provider.autocast

    def enter(recipe: Any, x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipe):
            return x + 1

    reset_compiler()
    compiled = torch.compile(enter, backend="eager", fullgraph=ctx.axes.fullgraph)
    for how, run in (("eager", enter), ("compiled", compiled)):
        for what, make in FOREIGN.items():
            wrong = make(ctx.provider.recipe(ctx.axes.recipe))
            with probing.part(f"after {what} in the place of a recipe, {how}"):
                seen = [_raised(run, wrong, error, text) for _ in range(CALLS)]
            probing.fact(f"{what} in the place of a recipe, {how}", [error] * CALLS, seen)


def _raised(run: Callable[..., Any], recipe: Any, error: str, text: str) -> str:
    """``error`` where it was raised as documented, else what came."""
    try:
        run(recipe, torch.ones(2))
    except Exception as raised:  # whatever it is, it is the fact
        seen = describe_error(raised, "probe")
        return error if is_documented(seen, error, text) else f"{seen.type}: {seen.message}"
    return "nothing"
