"""The support check is written so that ``python -O`` strips it, as it does asserts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import support
    from harness.fp8.recipe import Recipe

    require = support.require

    def stripped(recipe: Recipe, device: str) -> None:
        if __debug__:
            require(recipe, device)

    with patched(support, "require", stripped):
        yield provider


FAULT = Fault(
    name="refusal_by_assert",
    breaks="under python -O an unsupported recipe is accepted",
    caught_by="case.facts",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2304",
    where={
        "case": "unsupported_recipe",
        "provider": {"name": "reference", "emulate": False},
        "recipe": "mxfp8_block_scaling",
        "arch": "sm90",
    },
)
