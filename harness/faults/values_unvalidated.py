"""Fields of a recipe are taken as they are: a negative ``amax_epsilon`` goes on to the scales."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import recipe

    def as_given(value: float) -> str:
        return repr(float(value))

    with patched(recipe, "_epsilon", as_given):
        yield provider


FAULT = Fault(
    name="values_unvalidated",
    breaks="a recipe takes an epsilon that is negative or no number",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "recipe_switch", "variant": "inside"},
)
