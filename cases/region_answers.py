"""A probe: what a library answers when it is asked whether FP8 is on, whether it calibrates, and over which group.

A user's module branches on these answers (a plain kernel outside of FP8, a collective over the group), while no layer
of the library itself need ask. So each is asked at every edge of nested regions: eagerly, by compiled code that stands
in the open regions, and by compiled code that opens them itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from cases.inner_exits import keywords_of
from harness.observe.census import reset_compiler
from harness.probing import Probing
from harness.program import CaseContext, features_of

QUESTIONS = ("FP8 is on", "it calibrates", "the group is")
Answer = tuple[bool, bool, Any]
OUTSIDE: Answer = (False, False, None)
# Nested regions, outermost first, by what must be answered inside: every answer differs from the one around it, and no
# two questions have the same answers.
REGIONS: tuple[Answer, ...] = ((True, False, "one group"), (False, True, "another group"), (True, True, None))
EDGES = (OUTSIDE, *REGIONS, REGIONS[1], REGIONS[0], OUTSIDE)
Asking = Callable[[Any, torch.Tensor], "list[Answer]"]


def region_answers(ctx: CaseContext) -> Callable[[Probing], None]:
    """Every question at every edge, of a provider that can be asked (feature ``region_answers``)."""

    def probes(probing: Probing) -> None:
        ask = features_of(probing.provider).get("region_answers")
        if ask is None:
            return
        taken = set(keywords_of(probing.provider.autocast))
        reset_compiler()
        for how, asking in _ways(ctx, probing, taken, ask).items():
            with probing.part(f"after asking in regions, {how}"):
                seen = asking(ctx.provider.recipe(ctx.axes.recipe), torch.ones(2))
                for place, question in enumerate(QUESTIONS):
                    expected = [_expected(answer, taken)[place] for answer in EDGES]
                    probing.fact(f"{question}, at each edge, {how}", expected, [answer[place] for answer in seen])

    return probes


def _expected(answer: Answer, taken: set[str]) -> Answer:
    """What regions can't be told they don't answer."""
    enabled, calibrating, group = answer
    return enabled, calibrating and "calibrating" in taken, group if "amax_reduction_group" in taken else None


def _keywords(answer: Answer, taken: set[str]) -> dict[str, Any]:
    """What a region takes beside ``enabled`` and ``recipe`` to answer so."""
    told = {"calibrating": answer[1], "amax_reduction_group": answer[2]}
    return {name: value for name, value in told.items() if name in taken}


def _ways(ctx: CaseContext, probing: Probing, taken: set[str], ask: Callable[[], Answer]) -> dict[str, Asking]:
    autocast = probing.provider.autocast
    compiled = functools.partial(torch.compile, backend="eager", fullgraph=ctx.axes.fullgraph)
    keywords = [_keywords(answer, taken) for answer in REGIONS]

    def region(recipe: Any, level: int) -> Any:
        return autocast(enabled=REGIONS[level][0], recipe=recipe, **keywords[level])

    def at_edges(recipe: Any, here: Callable[[], Answer]) -> list[Answer]:
        seen = [here()]
        with region(recipe, 0):
            seen.append(here())
            with region(recipe, 1):
                seen.append(here())
                with region(recipe, 2):
                    seen.append(here())
                seen.append(here())
            seen.append(here())
        seen.append(here())
        return seen

    def standing(x: torch.Tensor) -> tuple[torch.Tensor, Answer]:
        return x + 1, ask()

    def opening(recipe: Any, x: torch.Tensor) -> tuple[torch.Tensor, list[Answer]]:
        return x + 1, at_edges(recipe, ask)

    stands: Callable[..., tuple[torch.Tensor, Answer]] = compiled(standing)
    opens: Callable[..., tuple[torch.Tensor, list[Answer]]] = compiled(opening)
    ways: dict[str, Asking] = {
        "eager": lambda recipe, x: at_edges(recipe, ask),
        "compiled in open regions": lambda recipe, x: at_edges(recipe, lambda: stands(x)[1]),
    }
    if ctx.axes.recipe.name != "delayed_scaling":  # compiles nowhere
        ways["compiled with its regions"] = lambda recipe, x: opens(recipe, x)[1]
    return ways
