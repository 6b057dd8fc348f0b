"""Recipes can be changed in place, and what they were constructed with stays in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8.recipe import RECIPE_CLASSES

    with ExitStack() as stack:
        for cls in RECIPE_CLASSES.values():
            stack.enter_context(patched(cls, "__setattr__", object.__setattr__))
        yield provider


FAULT = Fault(
    name="changed_recipe_keeps_key",
    breaks="a recipe that is changed in place computes what it was constructed for",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    report="NVIDIA/TransformerEngine#3130",
    where={"case": "recipe_switch", "variant": "mutated"},
)
