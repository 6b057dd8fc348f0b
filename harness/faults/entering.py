"""What the faults of entering a region share: the library's own ``autocast_enter`` is given other arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.faults.patching import patched

if TYPE_CHECKING:
    from harness.providers.protocol import Provider


def enter_fault(change: Callable[[dict[str, Any], Any], None]) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault in which ``change(arguments, state)`` changes what a region is entered with.

    ``state`` is the library's, as it is before the region.
    """

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8.state import FP8GlobalStateManager

        enter = FP8GlobalStateManager.autocast_enter

        def entering(**arguments: Any) -> None:
            change(arguments, FP8GlobalStateManager.quantization_state)
            enter(**arguments)

        with patched(FP8GlobalStateManager, "autocast_enter", staticmethod(entering)):
            yield provider

    return apply


def keep_outer_recipe(arguments: dict[str, Any], state: Any) -> None:
    """A region inside another one goes on with the recipe of that one."""
    if state.autocast_depth > 0 and arguments["enabled"] and state.fp8_recipe is not None:
        arguments["fp8_recipe"] = state.fp8_recipe
