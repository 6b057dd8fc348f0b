"""A recipe that is pickled or copied comes back with its defaults: ``__reduce__`` names the class alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _of_the_class(recipe: Any) -> tuple[Any, ...]:
    return type(recipe), ()


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.recipe import Recipe

    with patched(Recipe, "__reduce__", _of_the_class):
        yield provider


FAULT = Fault(
    name="recipe_pickled_as_default",
    breaks="a copied or pickled recipe loses its fields",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "recipe_switch", "variant": "inside"},
)
