"""What a region puts back is kept in a stack of eight: the ninth region pushes the outermost one's entry out.

Regions that find the stack empty as they are left put back what is outside of all regions. Real code: a stack of fixed
length in place of one entry in each region's own frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.patching import autocast_fault
from harness.providers.protocol import Provider

if TYPE_CHECKING:
    from harness.fp8.state import AutocastState

LENGTH = 8


def _region(kept: list[AutocastState], outside: AutocastState) -> Callable[..., Any]:
    @contextmanager
    def autocast(enabled: bool = True, recipe: Any = None, **others: Any) -> Iterator[None]:
        from harness.fp8 import FP8GlobalStateManager

        before = FP8GlobalStateManager.get_autocast_state()
        FP8GlobalStateManager.autocast_enter(enabled=enabled, fp8_recipe=recipe)
        kept.append(before)
        if len(kept) > LENGTH:
            kept.pop(0)
        try:
            yield
        finally:
            FP8GlobalStateManager.set_autocast_state(kept.pop() if kept else outside)
            FP8GlobalStateManager.autocast_exit(enabled, _graph=False)

    return autocast


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import FP8GlobalStateManager

    outside = FP8GlobalStateManager.get_autocast_state()
    with autocast_fault(_region([], outside))(provider) as broken:
        yield broken


FAULT = Fault(
    name="depth_capped",
    breaks="of more than eight regions the outermost ones are forgotten",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    where={"case": "disabled", "variant": "twelve"},
)
