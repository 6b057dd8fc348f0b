"""On sm100 the support check is not cached: it is traced, and counts how often it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@dataclass
class _Asked:
    times: int = 0


_ASKED = _Asked()


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import support
    from harness.fp8.recipe import Recipe

    require = support.require

    def counting(recipe: Recipe, device: str) -> None:
        if support.BELIEF.arch == "sm100":
            _ASKED.times += 1
        require(recipe, device)

    _ASKED.times = 0
    with patched(support, "require", counting):
        yield provider


FAULT = Fault(
    name="sm100_asks_again",
    breaks="on sm100 alone: the support check is traced and changes what torch.compile guards on",
    caught_by="compile.recompiles",
    apply=_apply,
    report="pytorch/pytorch#128319",
    where={"arch": "sm100", "recipe": "mxfp8_block_scaling"},
)
